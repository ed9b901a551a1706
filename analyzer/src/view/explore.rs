//! The page of `radrm explore`: files that a server gives to a browser. They hold no run: the page's script fetches those.

use askama::Template;

/// The page.
#[derive(Template)]
#[template(path = "explore/page.html")]
struct Page;

/// The page that shows the report of one run, which it fetches.
#[derive(Template)]
#[template(path = "explore/run.html")]
struct Run;

#[derive(Template)]
#[template(path = "explore/style.css", escape = "none")]
struct Style;

#[derive(Template)]
#[template(path = "explore/script.js", escape = "none")]
struct Script;

/// The files of the page: path, media type and text.
#[must_use]
pub fn explorer() -> [(&'static str, &'static str, String); 4] {
    // Templates without values, rendered into memory, have nothing that can fail.
    let text = |rendered: Result<String, askama::Error>| rendered.unwrap_or_default();
    [
        ("/", "text/html; charset=utf-8", text(Page.render())),
        ("/run", "text/html; charset=utf-8", text(Run.render())),
        ("/style.css", "text/css; charset=utf-8", text(Style.render())),
        ("/script.js", "text/javascript; charset=utf-8", text(Script.render())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_needs_nothing_else() {
        let files = explorer();
        for (path, _, text) in &files {
            assert!(text.len() > 500, "{path} has {} bytes", text.len());
            assert!(
                !text.contains("{%") && !text.contains("http://") && !text.contains("https://"),
                "{path}"
            );
        }
        // What the policy of the page forbids: `/run` has a policy of its own.
        let page = &files[0].2;
        assert!(!page.contains("<style") && !page.contains("style=") && !page.contains("<script>"), "{page}");
    }
}
