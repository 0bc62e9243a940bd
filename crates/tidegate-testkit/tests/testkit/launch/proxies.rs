//! The proxy between a plain socket and an echo server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tidegate_testkit::launch::{Proxy, wait_until};

/// Much longer than any step of these tests takes without a delay.
const LONG: Duration = Duration::from_millis(150);

/// Starts an echo server, with one thread per connection.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                let _ = std::io::copy(&mut from, &mut to);
            });
        }
    });
    address
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn round_trip(stream: &mut TcpStream) {
    let mut answer = [0; 5];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

#[expect(clippy::disallowed_methods, reason = "measures a delay of the real network")]
fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// Whether nothing arrives within a time that is long compared with an undelayed round trip.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let silent = stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    silent
}

#[test]
fn bytes_are_delayed_each_way_and_from_now_on() {
    let proxy = Proxy::start(echo());
    let mut stream = connect(&proxy);
    round_trip(&mut stream);
    proxy.set_delay(LONG);
    let both = timed(|| round_trip(&mut stream));
    assert!(both >= 2 * LONG, "{both:?}");
    proxy.set_delays(LONG, Duration::ZERO);
    let one = timed(|| round_trip(&mut stream));
    assert!(one >= LONG, "{one:?}");
    proxy.set_delay(Duration::ZERO);
    round_trip(&mut stream);
}

#[test]
fn order_is_kept_and_a_delay_costs_no_throughput() {
    let proxy = Proxy::start(echo());
    let mut stream = connect(&proxy);
    let sent: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut writer = stream.try_clone().unwrap();
    let expected = sent.clone();
    let took = timed(|| {
        // Later pieces have shorter delays but must not overtake earlier ones.
        let delays = [LONG, LONG / 2, Duration::ZERO];
        for (piece, delay) in sent.chunks(sent.len() / 2).zip(delays) {
            proxy.set_delay(delay);
            writer.write_all(piece).unwrap();
        }
        writer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == expected, "{} of {} bytes, or in another order", got.len(), expected.len());
    });
    // If delays added up, about a hundred chunks would wait for each other.
    assert!(took < 40 * LONG, "{took:?}");
}

#[test]
fn a_stalled_connection_goes_on_where_it_was() {
    let proxy = Proxy::start(echo());
    let mut stream = connect(&proxy);
    round_trip(&mut stream);
    proxy.stall();
    let mut late = connect(&proxy);
    stream.write_all(b"hello").unwrap();
    late.write_all(b"hello").unwrap();
    assert!(is_silent(&mut stream) && is_silent(&mut late));
    proxy.resume();
    for stream in [&mut stream, &mut late] {
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello", "kept bytes arrive first");
        round_trip(stream);
    }
}

#[test]
fn a_cut_closes_what_is_there_and_lets_new_ones_in() {
    let proxy = Proxy::start(echo());
    let mut streams = [connect(&proxy), connect(&proxy)];
    streams.iter_mut().for_each(round_trip);
    proxy.stall();
    proxy.cut();
    for mut stream in streams {
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "closed or reset");
    }
    proxy.resume();
    round_trip(&mut connect(&proxy));
    assert_eq!(proxy.accepted(), 3);
}

#[test]
fn a_refusing_proxy_closes_new_connections_only() {
    let proxy = Proxy::start(echo());
    let mut old = connect(&proxy);
    round_trip(&mut old);
    proxy.refuse();
    assert_eq!(connect(&proxy).read(&mut [0; 1]).unwrap_or(0), 0);
    round_trip(&mut old);
    proxy.accept();
    round_trip(&mut connect(&proxy));
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn a_dropped_proxy_is_gone() {
    let proxy = Proxy::start(echo());
    let address = proxy.address();
    let mut stream = connect(&proxy);
    round_trip(&mut stream);
    drop(proxy);
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    wait_until("a refusal", || TcpStream::connect(address).is_err().then_some(()));
}

#[test]
fn a_server_that_is_down_closes_the_connection() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start(unused);
    assert_eq!(connect(&proxy).read(&mut [0; 1]).unwrap_or(0), 0);
}
