//! The page in a browser.

use std::fmt::Write as _;

use super::Served;
use super::made::{BATCHES, FAILING, Place};
use radrm_preload_tests::browser::Browser;

const CHECKS: &str = include_str!("checks.js");
const READY: &str = "Boolean(document.body?.dataset.first)";
/// Runs that are chosen at once.
const CHOSEN: usize = 20;

/// Beside the status of profiles that are not there, which a browser logs.
#[track_caller]
fn nothing_was_complained_of(browser: &Browser, gone: &str) {
    let is_meant = |of: &&String| of.contains("\"source\":\"network\"") && of.contains(gone);
    let others: Vec<_> = browser.complaints.iter().filter(|of| gone.is_empty() || !is_meant(of)).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn a_browser_finds_every_part_of_the_explorer_at_work() {
    let Some(mut browser) = Browser::start() else { return };
    let (count, profiles) = (400, 24);
    let place = Place::new(count, profiles);
    let served = Served::start(&place);
    let left = (0..count).filter(|at| BATCHES[at % BATCHES.len()] == 64 && at % FAILING != 0).count();
    for width in [1400, 500] {
        browser.open(&served.url, (width, 900));
        browser.wait(READY);
        let checks = CHECKS.replace("LEFT_BY_FILTER", &left.to_string());
        let result = browser.value(&checks);
        let lines: Vec<&str> = result.as_str().expect("lines").lines().collect();
        let failed: Vec<_> = lines.iter().filter(|line| !line.starts_with("ok ")).collect();
        assert!(failed.is_empty(), "at {width} pixels: {failed:#?}");
        assert_eq!(lines.last(), Some(&"ok the end"), "{lines:?}");
        // By keys alone, as they come from a keyboard: to the first box of the table, and the picture of memory.
        browser.value("document.querySelector('button[name=clear]').click()");
        browser.value("document.querySelector('#list td input').focus()");
        browser.key(" ", 32);
        browser.wait("document.querySelectorAll('#overlay .chart path.line').length === 4");
        assert_eq!(browser.value("document.activeElement.checked"), true, "what has the focus keeps it");
        browser.value("document.querySelector('#overlay .chart').focus()");
        browser.key("ArrowRight", 39);
        browser.key("ArrowRight", 39);
        let said = browser.value("document.activeElement.querySelector('[role=status]').textContent");
        assert!(said.as_str().is_some_and(|text| text.contains(", run ") && text.contains(" GiB")), "{said}");
        browser.value("document.querySelector('#relations .chart').focus()");
        browser.key("End", 35);
        browser.key("Enter", 13);
        browser.wait(
            "document.querySelector('#relations .chart [role=status]').textContent.endsWith('is chosen')",
        );
    }
    nothing_was_complained_of(&browser, "/api/series/");
}

#[test]
fn a_view_is_in_the_address_and_comes_back_with_it() {
    let Some(mut browser) = Browser::start() else { return };
    let place = Place::new(40, 2);
    let served = Served::start(&place);
    let view = "&filter=batch%3D64&order=batch&up=1&columns=run%2Cbatch&as=mean&y=run_time&logy=1";
    browser.open(&format!("{}{view}", served.url), (1200, 900));
    browser.wait(READY);
    let shown = |browser: &mut Browser| {
        browser.value(
            "[document.getElementById('found').textContent, \
              [...document.querySelectorAll('#list th')].map(head => head.textContent).join(), \
              document.querySelector('#list th[aria-sort]').getAttribute('aria-sort'), \
              document.querySelector('#relations [name=as]').value, \
              document.querySelector('#relations [name=y]').value, \
              String(document.querySelector('#relations [name=logy]').checked)].join('|')",
        )
    };
    assert_eq!(shown(&mut browser), "10 of 40 runs|chosen,run,batch|ascending|mean|run_time|true");
    // As a person copies it.
    let copied = browser.value("location.href");
    browser.open(copied.as_str().expect("an address"), (1200, 900));
    browser.wait(READY);
    assert_eq!(shown(&mut browser), "10 of 40 runs|chosen,run,batch|ascending|mean|run_time|true");
    // Names of no column are left out.
    browser.open(&format!("{}&columns=none&order=none&x=none", served.url), (1200, 900));
    browser.wait(READY);
    assert_eq!(browser.value("document.getElementById('found').textContent"), "40 of 40 runs");
    nothing_was_complained_of(&browser, "");
}

#[test]
fn a_run_has_its_own_page_and_a_wrong_address_says_so() {
    let Some(mut browser) = Browser::start() else { return };
    let place = Place::new(8, 3);
    let served = Served::start(&place);
    browser.open(&served.url, (1200, 900));
    browser.wait(READY);
    let run = browser.value("document.querySelector('#list td a').getAttribute('href')");
    let base = served.url.split_once("/#").expect("an address").0.to_owned();
    browser.open(&format!("{base}{}", run.as_str().expect("a link")), (1200, 900));
    browser.wait("document.querySelector('h1 code')?.textContent === 'python3 train.py'");
    browser.wait("document.querySelectorAll('.chart.memory path.band').length === 1");
    nothing_was_complained_of(&browser, "");
    // Of a run whose profile is gone, and with another token. The log has the status of each.
    let gone = run.as_str().expect("a link").replace("#8.", "#5.");
    browser.open(&format!("{base}{gone}"), (1200, 900));
    browser
        .wait("document.getElementById('said')?.textContent.includes('4.radrm: No such file or directory')");
    browser.open(&format!("{base}/#0123"), (1200, 900));
    browser.wait("document.getElementById('said')?.textContent.includes('token is missing or wrong')");
    browser.open(&base, (1200, 900));
    browser.wait("document.getElementById('said')?.textContent.includes('lacks its token')");
}

/// The figures are for people: no bound on times is asserted.
#[test]
fn ten_thousand_runs_are_shown_and_timed() {
    let Some(mut browser) = Browser::start() else { return };
    let place = Place::new(10_000, CHOSEN);
    let served = Served::start(&place);
    let mut lines = String::new();
    for round in 0..5 {
        browser.open(&served.url, (1400, 900));
        browser.wait(READY);
        assert_eq!(browser.value("document.getElementById('found').textContent"), "10,000 of 10,000 runs");
        let first = browser.value("document.body.dataset.first");
        let asked = browser.value(
            "(of => `asked after ${of.startTime.toFixed(0)} ms, answered after ${of.responseEnd.toFixed(0)} ms`)(\
             performance.getEntriesByType('resource').find(of => of.name.endsWith('/api/runs')))",
        );
        browser.value("document.querySelector('button[name=choose]').click()");
        browser.wait("document.querySelectorAll('#overlay .chart path.line').length === 80");
        let overlay = browser.value("document.querySelector('#overlay').dataset.ms");
        let typed = "(() => { const field = document.querySelector('[name=filter]'), begun = performance.now(); \
                     field.value = 'peak>4GiB train'; field.dispatchEvent(new Event('input')); \
                     return new Promise(done => { const wait = () => document.getElementById('found').textContent.startsWith('10,000 ') \
                     ? setTimeout(wait, 1) : done(performance.now() - begun); wait(); }); })()";
        let filter = browser.value(typed).as_f64().unwrap_or_default();
        let _ = writeln!(
            lines,
            "round {round}: first view {first} ms ({asked}), overlay of 20 runs {overlay} ms, filter {filter:.1} ms"
        );
    }
    nothing_was_complained_of(&browser, "");
    eprint!("{lines}");
    if let Some(folder) = std::env::var_os("RADRM_PAGES") {
        let folder = std::path::PathBuf::from(folder);
        std::fs::write(folder.join("explore.txt"), &lines).expect("written");
        std::fs::write(folder.join("explore.png"), browser.picture()).expect("written");
    }
}
