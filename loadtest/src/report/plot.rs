//! Plots as inline SVG: lines over one axis, drawn without any script.
//!
//! Owns scales, ticks and paths. Knows nothing of what is plotted. Text comes from this program
//! only, never from a server, and needs no escaping.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// A line of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Points, x ascending.
    pub(crate) points: Vec<(f64, f64)>,
}

/// How values of an axis are written.
pub(crate) type Format = fn(f64) -> String;

/// A plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Its heading.
    pub(crate) title: String,
    /// What the x axis shows.
    pub(crate) x_label: &'static str,
    /// Ticks of the x axis with their texts; empty: chosen.
    pub(crate) x_ticks: Vec<(f64, String)>,
    /// What y ticks are round multiples of.
    pub(crate) y_unit: f64,
    /// How y values are written.
    pub(crate) y_format: Format,
    /// The lines.
    pub(crate) lines: Vec<Line>,
}

impl Plot {
    /// The plot as a figure; nothing when there is nothing to draw.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        if points().count() < 2 {
            return String::new();
        }
        let x = Scale::over(points().map(|point| point.0), (LEFT, WIDTH - RIGHT), None);
        let y = Scale::over(points().map(|point| point.1), (HEIGHT - BOTTOM, TOP), Some(0.0));
        let mut out = format!(
            "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            self.title, self.title
        );
        self.axes(&mut out, &x, &y);
        for (index, line) in self.lines.iter().enumerate() {
            path(&mut out, line, index, &x, &y);
        }
        out.push_str("</svg>");
        self.legend(&mut out);
        out.push_str("</figure>\n");
        out
    }

    fn axes(&self, out: &mut String, x: &Scale, y: &Scale) {
        let mut last = String::new();
        for value in y.ticks(self.y_unit) {
            let text = (self.y_format)(value);
            // Fractions of things that are counted have no tick of their own.
            if text == std::mem::replace(&mut last, text.clone()) {
                continue;
            }
            let at = y.place(value);
            put(
                out,
                format_args!(
                    "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                    WIDTH - RIGHT
                ),
            );
            put(
                out,
                format_args!("<text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>", LEFT - 8.0, at + 4.0,),
            );
        }
        let chosen = || x.ticks(1.0).into_iter().map(|value| (value, format!("{value}"))).collect();
        let ticks = if self.x_ticks.is_empty() { chosen() } else { self.x_ticks.clone() };
        for (value, text) in ticks {
            put(
                out,
                format_args!(
                    "<text class=\"x\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                    x.place(value),
                    HEIGHT - BOTTOM + 16.0
                ),
            );
        }
        put(
            out,
            format_args!(
                "<text class=\"x label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                (LEFT + WIDTH - RIGHT) / 2.0,
                HEIGHT - 3.0,
                self.x_label
            ),
        );
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul class=\"legend\">");
        for (index, line) in self.lines.iter().enumerate() {
            put(out, format_args!("<li class=\"c{index}\">{}</li>", line.name));
        }
        out.push_str("</ul>");
    }
}

fn path(out: &mut String, line: &Line, index: usize, x: &Scale, y: &Scale) {
    put(out, format_args!("<path class=\"c{index}\" d=\""));
    for (number, (px, py)) in line.points.iter().enumerate() {
        let letter = if number == 0 { 'M' } else { 'L' };
        put(out, format_args!("{letter}{:.1} {:.1}", x.place(*px), y.place(*py)));
    }
    out.push_str("\"/>");
}

/// Writing to a string cannot fail.
fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(arguments);
}

/// A linear scale from values to coordinates.
#[derive(Clone, Copy, Debug)]
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Covers all values, and `also`; never of zero width.
    fn over(values: impl Iterator<Item = f64>, (from, to): (f64, f64), also: Option<f64>) -> Self {
        let (low, high) =
            values.chain(also).fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Four to eight values that are round in that unit, or in its tenths and tens.
    fn ticks(&self, unit: f64) -> Vec<f64> {
        let rough = (self.high - self.low) / unit / 7.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(power * 10.0) * unit;
        let first = (self.low / step).ceil();
        (0..12).map(|index| (first + f64::from(index)) * step).take_while(|tick| *tick <= self.high).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let scale = Scale { low: 0.0, high: 97.0, from: 0.0, to: 1.0 };
        assert_eq!(scale.ticks(1.0), [0.0, 20.0, 40.0, 60.0, 80.0]);
    }

    #[test]
    fn a_flat_line_and_no_line() {
        let mut plot = Plot {
            title: "t".into(),
            x_label: "x",
            x_ticks: vec![],
            y_unit: 1.0,
            y_format: |value| value.to_string(),
            lines: vec![Line { name: "n".into(), points: vec![(0.0, 0.0), (1.0, 0.0)] }],
        };
        let svg = plot.svg();
        assert!(svg.contains("<path class=\"c0\" d=\"M74.0 206.0L614.0 206.0\"/>"), "{svg}");
        assert!(!svg.contains("NaN"));
        plot.lines.clear();
        assert_eq!(plot.svg(), "");
    }
}
