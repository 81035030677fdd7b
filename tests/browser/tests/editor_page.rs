//! The doc editor's page in a real Chromium: its JavaScript is the client library once more, and nothing else
//! runs it.
#![allow(clippy::unwrap_used)]

use browser_tests::{Browser, Window};
use cloud::Cloud;
use doc_editor::api::serve_until;
use doc_editor::{DocumentService, NewDocument};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio::task::JoinHandle;

/// A server that can be stopped and started again at the same address.
struct Server {
    cloud: Cloud,
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, JoinHandle<anyhow::Result<()>>)>,
}

impl Server {
    /// With one document, `d`.
    async fn start(text: &str) -> Self {
        let cloud = cloud::connect_alone_for_tests().await.unwrap();
        doc_editor::archetype().create(&cloud).await.unwrap();
        let new = NewDocument {
            document_id: "d".into(),
            title: "d".into(),
            text: text.into(),
        };
        let service = DocumentService::new(cloud.clone());
        service.create_document(&new).await.unwrap();
        let mut server = Self {
            cloud,
            address: ([127, 0, 0, 1], 0).into(),
            running: None,
        };
        server.start_again().await;
        server
    }

    /// A new node: it knows nothing but what is in the store.
    async fn start_again(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            let _ = stopped.await;
        };
        let service = DocumentService::new(self.cloud.clone());
        let task = tokio::spawn(serve_until(service, listener, stopped));
        self.running = Some((stop, task));
    }

    async fn stop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        let _ = stop.send(());
        task.await.unwrap().unwrap();
    }

    /// What is stored, as a new node reads it.
    async fn stored(&self) -> String {
        let service = DocumentService::new(self.cloud.clone());
        service.load_document("d").await.unwrap().text
    }
}

/// Two people with the same document open, each in a Chromium of their own.
struct Desk {
    server: Server,
    ada: Window,
    bob: Window,
    _browser: Browser,
    _turn: MutexGuard<'static, ()>,
}

/// One desk at a time: two browsers are enough for a small machine.
static TURN: Mutex<()> = Mutex::const_new(());

impl Desk {
    async fn with(text: &str) -> Self {
        let turn = TURN.lock().await;
        let server = Server::start(text).await;
        let browser = Browser::start().await.unwrap();
        let page = |name: &str| format!("http://{}/d/d?name={name}", server.address);
        let (ada, bob) = (page("Ada"), page("Bob"));
        let (ada, bob) = tokio::join!(browser.open(&ada), browser.open(&bob));
        let (ada, bob) = (ada.unwrap(), bob.unwrap());
        for window in [&ada, &bob] {
            window.until(&shows(text)).await.unwrap();
            window.until(&status("saved")).await.unwrap();
        }
        Self {
            server,
            ada,
            bob,
            _browser: browser,
            _turn: turn,
        }
    }

    /// Waits until everything typed is stored and shown in both windows; gives the text.
    async fn settled(&self) -> String {
        for window in [&self.ada, &self.bob] {
            window.until(&status("saved")).await.unwrap();
        }
        let text = self.server.stored().await;
        for window in [&self.ada, &self.bob] {
            window.until(&shows(&text)).await.unwrap();
            // Nothing was under way that would change it again.
            window.until(&status("saved")).await.unwrap();
        }
        text
    }

    async fn leave(self) {
        self.ada.close().await.unwrap();
        self.bob.close().await.unwrap();
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn status(begins: &str) -> String {
    format!(
        "document.getElementById('status').textContent.startsWith({})",
        quoted(begins)
    )
}

fn shows(text: &str) -> String {
    format!(
        "!document.getElementById('text').disabled && document.getElementById('text').value === {}",
        quoted(text)
    )
}

fn lists(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('#people li')].some(one => one.textContent === {})",
        quoted(name)
    )
}

/// Whether a cursor with this name stands right after this text.
fn cursor_after(name: &str, text: &str) -> String {
    format!(
        "(() => {{
            const mark = document.querySelector('#cursors i[data-name={}]');
            if (!mark) return false;
            const before = document.createRange();
            before.setStart(document.getElementById('cursors'), 0);
            before.setEndBefore(mark);
            return before.toString() === {};
        }})()",
        quoted(name),
        quoted(text)
    )
}

/// Puts the cursor somewhere, or selects: counted in UTF-16 units, as a browser does.
async fn select(window: &Window, from: usize, to: usize) {
    let select = format!(
        "const text = document.getElementById('text'); text.focus(); text.setSelectionRange({from}, {to});"
    );
    window.run(&select).await.unwrap();
}

/// Puts a text where the cursor is, in one go, as pasting does. (The browser's own command for it takes
/// minutes for a long text.)
async fn paste(window: &Window, text: &str) {
    let insert = format!(
        "const text = document.getElementById('text');
         text.setRangeText({}, text.selectionStart, text.selectionEnd, 'end');
         text.dispatchEvent(new InputEvent('input', {{ inputType: 'insertFromPaste' }}));",
        quoted(text)
    );
    window.run(&insert).await.unwrap();
}

/// The letters of one alphabet, in the order they stand in.
fn only(text: &str, keep: impl Fn(&char) -> bool) -> String {
    text.chars().filter(keep).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_windows_that_type_at_once_in_two_places_get_what_each_typed() {
    let desk = Desk::with("first: \nsecond: \n").await;
    select(&desk.ada, 7, 7).await;
    select(&desk.bob, 16, 16).await;
    let (ada, bob) = tokio::join!(
        desk.ada
            .press("the quick brown fox jumps over the lazy dog"),
        desk.bob
            .press("0123456789 0123456789 0123456789 0123456789"),
    );
    ada.unwrap();
    bob.unwrap();
    assert_eq!(
        desk.settled().await,
        "first: the quick brown fox jumps over the lazy dog\n\
         second: 0123456789 0123456789 0123456789 0123456789\n"
    );
    desk.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_windows_that_type_at_once_in_one_place_end_in_the_same_text() {
    let desk = Desk::with("").await;
    let (letters, digits) = ("abcdefghijklmnopqrstuvwxyz", "01234567890123456789012345");
    let (ada, bob) = tokio::join!(desk.ada.press(letters), desk.bob.press(digits));
    ada.unwrap();
    bob.unwrap();
    // Whose comes first is nobody's to say; but nothing is lost, doubled or out of its writer's order.
    let text = desk.settled().await;
    assert_eq!(text.len(), letters.len() + digits.len(), "{text}");
    assert_eq!(only(&text, char::is_ascii_lowercase), letters);
    assert_eq!(only(&text, char::is_ascii_digit), digits);
    desk.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_appears_moves_and_goes_with_its_person() {
    let Desk {
        server: _server,
        ada,
        bob,
        _browser,
        _turn,
    } = Desk::with("hello world").await;
    ada.until(&lists("Bob")).await.unwrap();
    bob.until(&lists("Ada")).await.unwrap();
    // Nobody is told about themselves.
    let own = ada.value(&lists("Ada")).await.unwrap();
    assert_eq!(own, false);

    select(&bob, 5, 5).await;
    ada.until(&cursor_after("Bob", "hello")).await.unwrap();
    bob.press("!").await.unwrap();
    ada.until(&cursor_after("Bob", "hello!")).await.unwrap();
    // Text before it moves it along, in both windows.
    select(&ada, 0, 0).await;
    ada.press("oh, ").await.unwrap();
    ada.until(&cursor_after("Bob", "oh, hello!")).await.unwrap();
    bob.until(&cursor_after("Ada", "oh, ")).await.unwrap();

    bob.close().await.unwrap();
    ada.until(&format!("!{}", lists("Bob"))).await.unwrap();
    ada.until("document.querySelectorAll('#cursors i').length === 0")
        .await
        .unwrap();
    ada.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_while_the_server_is_away_is_sent_when_it_is_back() {
    let mut desk = Desk::with("start\n").await;
    select(&desk.ada, 0, 0).await;
    desk.ada.press("before ").await.unwrap();
    assert_eq!(desk.settled().await, "before start\n");

    desk.server.stop().await;
    for window in [&desk.ada, &desk.bob] {
        window.until(&status("offline")).await.unwrap();
    }
    select(&desk.ada, 0, 0).await;
    desk.ada.press("ada, ").await.unwrap();
    select(&desk.bob, 13, 13).await;
    desk.bob.press("bob").await.unwrap();
    for window in [&desk.ada, &desk.bob] {
        window
            .until(&status("offline, edits are kept here"))
            .await
            .unwrap();
    }
    desk.server.start_again().await;
    assert_eq!(desk.settled().await, "ada, before start\nbob");
    // The people find each other again.
    desk.ada.until(&lists("Bob")).await.unwrap();
    desk.bob.until(&lists("Ada")).await.unwrap();
    desk.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn characters_that_a_browser_counts_as_two_are_counted_as_one() {
    let desk = Desk::with("🦀-漢").await;
    // Behind everything, which is four units and three characters; and behind the crab.
    select(&desk.ada, 4, 4).await;
    select(&desk.bob, 2, 2).await;
    const BACKSPACE: &str = "\u{e003}";
    let (_, erased) = tokio::join!(paste(&desk.ada, "🎉é"), desk.bob.press(BACKSPACE));
    erased.unwrap();
    assert_eq!(desk.settled().await, "-漢🎉é");
    desk.bob
        .until(&cursor_after("Ada", "-漢🎉é"))
        .await
        .unwrap();
    desk.ada.until(&cursor_after("Bob", "")).await.unwrap();
    desk.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_is_replaced_while_somebody_types_behind_it() {
    let desk = Desk::with("a brown fox").await;
    select(&desk.ada, 2, 7).await;
    select(&desk.bob, 11, 11).await;
    let (ada, bob) = tokio::join!(desk.ada.press("red"), desk.bob.press(" jumps"));
    ada.unwrap();
    bob.unwrap();
    assert_eq!(desk.settled().await, "a red fox jumps");
    desk.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_takes_back_ones_own_edit_and_leaves_the_others() {
    let desk = Desk::with("").await;
    paste(&desk.ada, "mine ").await;
    assert_eq!(desk.settled().await, "mine ");
    select(&desk.bob, 5, 5).await;
    desk.bob.press("theirs").await.unwrap();
    assert_eq!(desk.settled().await, "mine theirs");
    desk.ada.click("#undo").await.unwrap();
    desk.bob.until(&shows("theirs")).await.unwrap();
    assert_eq!(desk.settled().await, "theirs");
    desk.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_text_is_pasted_in_several_operations() {
    let desk = Desk::with("[]").await;
    let long = "all work and no play, 🎉\n".repeat(6_000);
    select(&desk.ada, 1, 1).await;
    let (_, bob) = tokio::join!(paste(&desk.ada, &long), async {
        select(&desk.bob, 2, 2).await;
        desk.bob.press(" end").await
    });
    bob.unwrap();
    let text = desk.settled().await;
    assert!(text == format!("[{long}] end"), "{} bytes", text.len());
    desk.leave().await;
}
