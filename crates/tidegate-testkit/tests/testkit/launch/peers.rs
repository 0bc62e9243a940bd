//! Peers: further processes of the test program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_testkit::launch::Peer;

use super::{is_alive, state};

const ROLE: &str = "TIDEGATE_TEST_PEER";

#[test]
fn a_peer_receives_lines_and_reports() {
    if let Some(role) = Peer::env_var(ROLE) {
        Peer::report(&format!("ready, {role}"));
        while let Some(line) = Peer::read_line() {
            Peer::report(&line.to_uppercase());
        }
        return;
    }
    let name = "launch::peers::a_peer_receives_lines_and_reports";
    let mut peers: Vec<Peer> =
        ["one", "two"].iter().map(|role| Peer::spawn(name, &[(ROLE, role)])).collect();
    let mut other = peers.pop().unwrap();
    let mut peer = peers.pop().unwrap();
    assert_eq!(peer.line(), "ready, one");
    assert_eq!(other.line(), "ready, two");
    assert_ne!(peer.pid(), other.pid());

    peer.stop();
    assert_eq!(state(peer.pid()), Some('T'));
    peer.send_line("frozen");
    peer.cont();
    assert_eq!(peer.line(), "FROZEN");
    peer.send_line("unread");
    assert_eq!(peer.finish(), ["UNREAD"]);

    let pid = other.pid();
    drop(other);
    assert!(!is_alive(pid), "a dropped peer is killed");
}

#[test]
fn a_peer_that_fails_fails_the_test() {
    if Peer::env_var(ROLE).is_some() {
        panic!("this panic is intended");
    }
    let failure = |name: &str| {
        let peer = Peer::spawn(name, &[(ROLE, "failing")]);
        let panic = catch_unwind(AssertUnwindSafe(|| peer.finish())).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let message = failure("launch::peers::a_peer_that_fails_fails_the_test");
    assert!(
        message.contains("the peer failed") && message.contains("this panic is intended"),
        "{message}"
    );
    let message = failure("launch::peers::no_such_test");
    assert!(message.contains("no test of that name"), "{message}");
}
