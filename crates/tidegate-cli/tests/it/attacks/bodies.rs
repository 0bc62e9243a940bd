//! Slow, large or expensive bodies do not delay other callers.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_testkit::launch::wait_until;
use tokio::time::Instant;

use super::fixtures::{Caller, LOCALHOST, Message, Program, Upstream, small_response};

const MIB: usize = 1 << 20;
/// Size of the largest body that is buffered.
const LARGEST: usize = 64 * MIB;
/// Memory bound: 384 MiB for bodies, about 30 MiB for the program, and the rest for memory that was
/// just freed: a body of unknown length moves to a buffer twice as large while the smaller one still
/// exists. Without a bound, eight bodies took 774 MiB.
const MAX_RESIDENT: usize = 640 * MIB;

const CHAT: &str = "/openai/v1/chat/completions";
const ANOTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 99));

fn started() -> Program {
    let upstream = Upstream::start(|_| small_response());
    Program::start(&format!("[providers.openai]\nbase_url = \"{}\"\n", upstream.url))
}

/// Makes a call with a body of about `size` bytes.
fn call(caller: &mut Caller, size: usize) -> Message {
    let text = "tide ".repeat(size / 5);
    let body = format!(
        r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    caller.request("POST", CHAT, &[("content-type", "application/json")], body.as_bytes())
}

/// Returns the number of bytes that the program has not read yet.
fn unread(program: &Program) -> usize {
    let port = format!(":{:04X}", program.http.port());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let unread = sockets.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_ours = fields.next()?.ends_with(&port);
        let (_, unread) = fields.nth(2)?.split_once(':')?;
        is_ours.then(|| usize::from_str_radix(unread, 16).unwrap())
    });
    unread.sum()
}

fn wait_until_all_is_read(program: &Program) {
    wait_until("the program to read what was sent", || (unread(program) == 0).then_some(()));
}

/// Returns the peak resident memory of the program.
fn peak_resident(program: &Program) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", program.serving.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1_024
}

/// Sends a very large body except for its last bytes. The program may reject it earlier.
fn send_most(listener: SocketAddr, from: IpAddr, framing: &str) -> Caller {
    let mut caller = Caller::at(listener, from);
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: {listener}\r\n{framing}");
    caller.write(head.as_bytes()).unwrap();
    let piece = vec![b' '; MIB];
    for _ in 1..LARGEST / MIB {
        if caller.write(&piece).is_err() {
            return caller;
        }
    }
    let _ = caller.write(&piece[..MIB - 64]);
    caller
}

/// Sends very large bodies from these addresses almost completely, then byte by byte. Checks that
/// other callers are served meanwhile and that memory stays bounded.
fn assert_slow_bodies_delay_no_others(addresses: [IpAddr; 8], framing: &str) {
    let program = started();
    let mut slow: Vec<Caller> = thread::scope(|scope| {
        let listener = program.http;
        let start = |from| scope.spawn(move || send_most(listener, from, framing));
        let all: Vec<_> = addresses.into_iter().map(start).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    wait_until_all_is_read(&program);
    for _ in 0..3 {
        for caller in &mut slow {
            // Rejected connections are closed.
            let _ = caller.write(b" ");
        }
        for from in [LOCALHOST, addresses[0], ANOTHER] {
            let small = call(&mut Caller::at(program.http, from), 100);
            assert_eq!(small.status(), 200, "small, from {from}: {}", small.text());
        }
        let larger = call(&mut Caller::at(program.http, ANOTHER), MIB);
        assert_eq!(larger.status(), 200, "of a mebibyte: {}", larger.text());
    }
    let most = peak_resident(&program) / MIB;
    assert!(most * MIB <= MAX_RESIDENT, "{most} MiB");
}

/// Point 5: eight bodies of 64 MiB occupy the whole buffer pool.
#[test]
fn slow_large_bodies_of_one_address_delay_no_others() {
    let framing = format!("content-length: {LARGEST}\r\n\r\n");
    assert_slow_bodies_delay_no_others([LOCALHOST; 8], &framing);
}

/// Point 5, from many addresses and without a content length.
#[test]
fn slow_large_bodies_of_many_addresses_delay_no_others() {
    let addresses = [2, 3, 4, 5, 6, 7, 8, 9].map(|last| [127, 0, 0, last].into());
    let framing = format!("transfer-encoding: chunked\r\n\r\n{LARGEST:x}\r\n");
    assert_slow_bodies_delay_no_others(addresses, &framing);
}

/// Point 8: parsing a body of 60 MiB must not block other calls on the same thread. Connections are
/// distributed over the threads, so the test opens two per thread. Times depend on the machine: no
/// small call may take a fifth of the time of the large one.
#[test]
fn expensive_body_delays_no_others() {
    let program = started();
    let text = r#""a","#.repeat(60 * MIB / 4);
    let body = format!(r#"{{"model":"m","messages":[{text}"a"]}}"#);
    let (most, last) = body.split_at(body.len() - 64);
    let mut large = Caller::at(program.http, LOCALHOST);
    let length = body.len();
    let host = program.http;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n");
    large.write(head.as_bytes()).unwrap();
    large.write(most.as_bytes()).unwrap();
    wait_until_all_is_read(&program);
    let is_answered = AtomicBool::new(false);
    let connections = thread::available_parallelism().unwrap().get() * 2;
    let mut others: Vec<_> = (0..connections).map(|_| Caller::at(host, LOCALHOST)).collect();
    for other in &mut others {
        assert_eq!(call(other, 100).status(), 200);
    }
    let start = Instant::now();
    let longest = thread::scope(|scope| {
        let is_answered = &is_answered;
        let all: Vec<_> = others
            .into_iter()
            .map(|other| scope.spawn(move || longest_call(other, is_answered)))
            .collect();
        large.write(last.as_bytes()).unwrap();
        assert_eq!(large.read().unwrap().unwrap().status(), 200);
        is_answered.store(true, Ordering::Relaxed);
        all.into_iter().map(|one| one.join().unwrap()).max().unwrap()
    });
    let large = start.elapsed();
    assert!(longest < large / 5, "a small call took {longest:?}, the large one {large:?}");
}

/// Makes small calls until the large one is answered, and returns the longest time.
fn longest_call(mut caller: Caller, is_answered: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_answered.load(Ordering::Relaxed) {
        let start = Instant::now();
        assert_eq!(call(&mut caller, 100).status(), 200);
        longest = longest.max(start.elapsed());
    }
    longest
}
