//! The HTML page in a real browser. Ignored by default: it needs Chromium (`cargo test -- --ignored`).

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::process::Command;

use support::{Fault, Server, generator, text};

const SWITCHES: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1300,2000",
];

#[test]
#[ignore = "needs Chromium"]
fn the_page_renders_its_plots() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("report.html");
    let server = Server::start(Fault::None);
    let arguments =
        ["mixed", "-n", "20", "-c", "4", "-r", "100", "-d", "3s", "--warm-up", "0s", "--pid", "1"];
    let run = generator(&arguments).args(["--url", &server.url(), "--html"]).arg(&page).output().unwrap();
    assert!(run.status.success(), "{}", text(&run));
    // A probe beside the page, not in it: what the browser made of it is written into its title.
    let probe = "<script>addEventListener('load',()=>{const b=[...document.querySelectorAll('figure path')].map(p=>p.getBBox());\
                 document.title='drawn '+b.filter(r=>r.width>100).length+' wide '+(document.documentElement.scrollWidth>innerWidth)})</script>";
    let html = std::fs::read_to_string(&page).unwrap().replace("</body>", &format!("{probe}</body>"));
    std::fs::write(&page, html).unwrap();
    let browser = Command::new("chromium")
        .args(SWITCHES)
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&browser.stdout).into_owned();
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap();
    let drawn: u32 = title.split(' ').nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
    assert!(drawn >= 8, "{title}");
    assert!(title.ends_with("wide false"), "the page scrolls sideways: {title}");
}
