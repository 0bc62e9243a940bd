//! Trusted proxies: their clients and tenants are scheduled separately.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::launch::wait_until;

use crate::program::{Serving, serve};

const ANSWER: &str = r#"{"choices":[{"message":{"role":"assistant","content":"ok"}}]}"#;
const CROWD: usize = 30;

/// The program behind a trusted proxy at 127.0.0.1, and a provider that does not respond until it
/// is opened.
struct Proxied {
    serving: Serving,
    is_open: Arc<(Mutex<bool>, Condvar)>,
    /// Request bodies received by the provider.
    served: Arc<Mutex<Vec<String>>>,
    calls: Vec<TcpStream>,
    _folder: TempDir,
}

impl Proxied {
    fn start() -> Self {
        let is_open = Arc::new((Mutex::new(false), Condvar::new()));
        let served = Arc::new(Mutex::new(Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (gate, seen) = (is_open.clone(), served.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (gate, seen) = (gate.clone(), seen.clone());
                thread::spawn(move || answer_calls(stream, &gate, &seen));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "[listen]\ntrusted_proxies = [\"127.0.0.1\"]\n\
             [providers.openai]\nbase_url = \"{url}\"\nmax_concurrent_requests = 1\n"
        );
        fs::write(folder.path().join("tidegate.toml"), config).unwrap();
        let serving = Serving::start(&mut serve(folder.path(), &[]));
        let mut proxied = Self { serving, is_open, served, calls: Vec::new(), _folder: folder };
        proxied.call("first", "");
        wait_until("the first call is at the provider", || {
            (proxied.served.lock().unwrap().len() == 1).then_some(())
        });
        proxied
    }

    /// Makes a call with additional headers and waits until it is queued.
    fn call(&mut self, who: &str, headers: &str) {
        let body =
            json!({"model": "m", "messages": [{"role": "user", "content": who}]}).to_string();
        let address = self.serving.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!(
            "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: {address}\r\n{headers}\
             authorization: Bearer sk-1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len(),
        );
        stream.write_all(request.as_bytes()).unwrap();
        self.calls.push(stream);
        let waiting = self.calls.len() as u64 - 1;
        wait_until("it waits", || {
            let (_, shown) = self.serving.ask("/admin/providers/openai");
            let shown: Value = serde_json::from_str(&shown).unwrap();
            (shown["waiting"] == waiting).then_some(())
        });
    }

    /// Opens the provider. Returns how many other calls were served before the last call of `who`.
    fn served_before(self, who: &str) -> usize {
        *self.is_open.0.lock().unwrap() = true;
        self.is_open.1.notify_all();
        let all = wait_until("all calls are served", || {
            let served = self.served.lock().unwrap();
            (served.len() == self.calls.len()).then(|| served.clone())
        });
        let last = all.iter().rposition(|body| body.contains(who)).unwrap();
        all[1..last].iter().filter(|body| !body.contains(who)).count()
    }
}

fn answer_calls(mut stream: TcpStream, gate: &(Mutex<bool>, Condvar), seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        seen.lock().unwrap().push(String::from_utf8(body).unwrap());
        drop(gate.1.wait_while(gate.0.lock().unwrap(), |is_open| !*is_open).unwrap());
        let length = ANSWER.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        if stream.write_all(&[head.as_bytes(), ANSWER.as_bytes()].concat()).is_err() {
            return;
        }
    }
}

/// All calls have the same key and address. If the setting is ignored, they are served in order of
/// arrival.
///
/// Setting: listen.trusted_proxies
#[test]
fn trusted_proxy_can_name_clients_tenants_and_priorities() {
    let mut proxied = Proxied::start();
    for _ in 0..CROWD {
        proxied.call("crowd", "x-forwarded-for: 192.0.2.1\r\n");
    }
    proxied.call("calm", "x-forwarded-for: 192.0.2.2\r\n");
    let before = proxied.served_before("calm");
    assert!(before <= 3, "{before} calls of one client went before another's");

    // Tenants named by the proxy are scheduled separately, and high priority goes first.
    let mut proxied = Proxied::start();
    for _ in 0..CROWD {
        proxied.call("crowd", "x-tidegate-tenant: crowd\r\n");
    }
    for _ in 0..10 {
        proxied.call("urgent", "x-tidegate-tenant: urgent\r\nx-tidegate-priority: high\r\n");
    }
    let before = proxied.served_before("urgent");
    assert!(before <= 6, "{before} calls went before those of a high priority");
}
