//! Rows of the table as they go into `docs/performance.md`.

/// The columns of a comparison.
pub(crate) fn pairs_head() {
    println!("| what | measured | beside | ratio | quartiles | extremes | budget | pairs |");
    println!("|---|---|---|---|---|---|---|---|");
}

/// One row: medians, and of the ratio also quartiles and extremes.
pub(crate) fn pairs(what: &str, subjects: &[f64], floors: &[f64], budget: Option<f64>) {
    let ratios = sorted(subjects.iter().zip(floors).map(|(subject, floor)| subject / floor));
    let median = |values: &[f64]| at(&sorted(values.iter().copied()), 0.5);
    let budget = budget.map_or("-".to_owned(), |budget| format!("{budget:.2}"));
    println!(
        "| {what} | {:.2} | {:.2} | {:.2} | {:.2} to {:.2} | {:.2} to {:.2} | {budget} | {} |",
        median(subjects),
        median(floors),
        at(&ratios, 0.5),
        at(&ratios, 0.25),
        at(&ratios, 0.75),
        at(&ratios, 0.0),
        at(&ratios, 1.0),
        ratios.len(),
    );
}

/// Ascending.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value at that part of a sorted list.
pub(crate) fn at(sorted: &[f64], part: f64) -> f64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a short list"
    )]
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}
