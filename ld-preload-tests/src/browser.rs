//! A browser without a window, driven through the pipe of its debugging protocol.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use serde_json::{Value, json};

use crate::child::Running;

/// Browsers that understand the options below.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Seconds after which a browser is taken to hang.
const PATIENCE: u64 = 240;

/// A browser with one page.
pub struct Browser {
    process: Running,
    session: String,
    number: u64,
    /// Complaints of the page: exceptions, and entries of the console and the log.
    pub complaints: Vec<String>,
    _folder: tempfile::TempDir,
}

fn installed() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let all = |folder: PathBuf| BROWSERS.map(|name| folder.join(name));
    std::env::split_paths(&folders).flat_map(all).find(|path| path.is_file())
}

impl Browser {
    /// `None`, said aloud, where there is none.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn start() -> Option<Self> {
        let Some(browser) = installed() else {
            eprintln!("skipped: no browser of {BROWSERS:?} is here");
            return None;
        };
        let folder = tempfile::tempdir().expect("directory");
        let mut browser = Self {
            process: Running::start(command(&browser, folder.path()), PATIENCE),
            session: String::new(),
            number: 0,
            complaints: Vec::new(),
            _folder: folder,
        };
        let target = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.ask("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Panics
    /// If the answer is an error, or the browser ends.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.process.say(&format!("{message}\0"));
        loop {
            let text = self.process.until(0);
            assert!(!text.is_empty(), "the browser ended at {method}");
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            if ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"]
                .iter()
                .any(|event| answer["method"] == *event)
            {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    /// Opens an address in a page of this size, and waits until it has loaded and is drawn.
    #[track_caller]
    pub fn open(&mut self, url: &str, (width, height): (u32, u32)) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", &size);
        // From another document: an address that differs in its fragment only would load nothing.
        self.ask("Page.navigate", &json!({ "url": "about:blank" }));
        self.ask("Page.navigate", &json!({ "url": url }));
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'");
        self.settle();
    }

    /// The value of an expression, which may be a promise.
    ///
    /// # Panics
    /// If it throws.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", &params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// If it does not become so.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        for _ in 0..1200 {
            if self.value(expression) == true {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("never true: {expression}; {:?}", self.complaints);
    }

    /// Waits until what the page observes of its sizes is drawn: one frame observes them, and the next draws.
    #[track_caller]
    fn settle(&mut self) {
        self.value("(async () => { for (let frames = 0; frames < 3; frames++) await new Promise(requestAnimationFrame); })()");
    }

    /// Sends a key down and up, as a keyboard does.
    pub fn key(&mut self, key: &str, code: u32) {
        let text = match key {
            "Enter" => "\r",
            " " => " ",
            _ => "",
        };
        let event =
            |kind: &str| json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text });
        self.ask("Input.dispatchKeyEvent", &event("keyDown"));
        let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
        self.ask("Input.dispatchKeyEvent", &up);
    }

    /// A picture of what the window shows, once it is drawn, as a PNG.
    ///
    /// # Panics
    /// If the browser takes none.
    #[track_caller]
    pub fn picture(&mut self) -> Vec<u8> {
        self.settle();
        let shot = self.ask("Page.captureScreenshot", &json!({ "format": "png" }));
        let text = shot["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
    }
}

/// Commands come from standard input, and answers go to standard output.
fn command(browser: &Path, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" --remote-debugging-pipe 3<&0 4>&1 1>&2"]).arg(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--no-first-run", "--disable-extensions", "--force-color-profile=srgb"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command
}
