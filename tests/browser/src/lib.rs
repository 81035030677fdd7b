//! A real Chromium, driven over WebDriver.
//!
//! Needs `chromium` and `chromedriver` on the path; Debian has them as `chromium` and `chromium-driver`.
//! Nothing here waits for a time to pass: [`Window::until`] asks the page itself, again and again, until
//! something is true, and gives up after [`PATIENCE`].
//!
//! WebDriver is JSON over HTTP, and eight of its commands are enough. The crates for it turn on features of
//! serde or syn that nobody else here has: with them every SDK would be compiled a second time.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long anything may take before it counts as never: much longer than it does.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A chromedriver on a port of its own. When it is dropped it is killed, and its windows with it.
pub struct Browser {
    address: String,
    driver: Child,
}

impl Browser {
    /// Starts one. The driver takes one free port twice, for IPv4 and for IPv6; somebody may come between, and then
    /// it ends, so it is tried again.
    pub async fn start() -> Result<Self> {
        let mut started = Self::start_once().await;
        for _ in 0..4 {
            if started.is_err() {
                started = Self::start_once().await;
            }
        }
        started
    }

    async fn start_once() -> Result<Self> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Its windows belong to its group, and outlive it unless they are killed too.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("chromedriver does not start: apt-get install chromium chromium-driver")?;
        let output = driver.stdout.take().context("chromedriver has no output")?;
        let mut lines = BufReader::new(output).lines();
        let mut said = String::new();
        let port = loop {
            let Some(line) = lines.next_line().await? else {
                bail!("chromedriver ended before it named its port; it said: {said}");
            };
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
            said = said + &line + "\n";
        };
        // A pipe that nobody reads fills up.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            address: format!("http://127.0.0.1:{port}"),
            driver,
        })
    }

    /// Opens a page in a Chromium of its own, with an empty profile: another person at another machine.
    pub async fn open(&self, url: &str) -> Result<Window> {
        let profile = tempfile::tempdir()?;
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1000,700",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "timeouts": { "script": PATIENCE.as_millis() as u64 },
        } } });
        let http = reqwest::Client::builder().timeout(2 * PATIENCE).build()?;
        let address = format!("{}/session", self.address);
        // chromedriver gives a Chromium a minute to start, which on a machine that is busy with other things may be
        // too short.
        let mut session = send(http.post(&address).json(&wanted)).await;
        for _ in 0..2 {
            if session.is_err() {
                session = send(http.post(&address).json(&wanted)).await;
            }
        }
        let session =
            session.context("Chromium does not start: apt-get install chromium chromium-driver")?;
        let id = session["sessionId"]
            .as_str()
            .context("a session has an id")?;
        let window = Window {
            session: format!("{}/session/{id}", self.address),
            http,
            _profile: profile,
        };
        window.command("url", json!({ "url": url })).await?;
        Ok(window)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(group) = self.driver.id() {
            let kill = format!("kill -s KILL -- -{group}");
            let _ = std::process::Command::new("sh")
                .args(["-c", &kill])
                .status();
        }
    }
}

/// The value that a WebDriver command gives, or its error in words.
async fn send(request: reqwest::RequestBuilder) -> Result<Value> {
    let mut answer: Value = request.send().await?.json().await?;
    let value = answer["value"].take();
    match value["error"].as_str() {
        Some(error) => bail!("{error}: {}", value["message"]),
        None => Ok(value),
    }
}

/// One page of one Chromium.
pub struct Window {
    session: String,
    http: reqwest::Client,
    _profile: TempDir,
}

impl Window {
    async fn command(&self, path: &str, body: Value) -> Result<Value> {
        let request = self.http.post(format!("{}/{path}", self.session));
        send(request.json(&body)).await
    }

    /// Waits until an expression of JavaScript is true on the page.
    pub async fn until(&self, condition: &str) -> Result<()> {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             const look = () => ({condition}) ? done(true) : setTimeout(look, 20);
             look();"
        );
        let body = json!({ "script": script, "args": [] });
        if let Err(error) = self.command("execute/async", body).await {
            let shown = "document.body.innerText + ' ' + document.querySelector('textarea')?.value";
            let shown = self.value(shown).await;
            bail!("never came true: {condition} ({error:#}); the page shows {shown:?}");
        }
        Ok(())
    }

    /// What an expression of JavaScript is on the page.
    pub async fn value(&self, expression: &str) -> Result<Value> {
        self.run(&format!("return ({expression});")).await
    }

    /// Runs statements of JavaScript on the page.
    pub async fn run(&self, statements: &str) -> Result<Value> {
        let body = json!({ "script": statements, "args": [] });
        self.command("execute/sync", body).await
    }

    /// Presses these keys, one after the other, wherever the cursor is.
    pub async fn press(&self, keys: &str) -> Result<()> {
        let press = |key: char| {
            ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key.to_string() }))
        };
        let pressed: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": pressed });
        self.command("actions", json!({ "actions": [keyboard] }))
            .await?;
        Ok(())
    }

    /// Clicks on what a selector finds.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let by = json!({ "using": "css selector", "value": selector });
        let found = self.command("element", by).await?;
        // An object with one entry, whose name the standard fixes.
        let element = found.as_object().and_then(|found| found.values().next());
        let element = element.and_then(Value::as_str).context("an element")?;
        self.command(&format!("element/{element}/click"), json!({}))
            .await?;
        Ok(())
    }

    /// A picture of the page: a PNG in base64.
    pub async fn picture(&self) -> Result<String> {
        let picture = send(self.http.get(format!("{}/screenshot", self.session))).await?;
        Ok(picture.as_str().context("a picture")?.to_owned())
    }

    /// Closes it, as a person does: the page gets to know.
    pub async fn close(self) -> Result<()> {
        send(self.http.delete(&self.session)).await?;
        Ok(())
    }
}
