//! A killed test cannot clean up; its servers and their folders are removed anyway.

use std::path::PathBuf;
use std::sync::OnceLock;

use tidegate_testkit::launch::{Flavor, Peer, RedisServer, wait_until};

use super::{is_alive, proc};

const ENDING: &str = "TIDEGATE_TEST_ENDING";

/// A server in a static, which is never dropped.
static SHARED: OnceLock<RedisServer> = OnceLock::new();

#[test]
fn no_server_outlives_its_test() {
    let Some(ending) = Peer::env_var(ENDING) else {
        for ending in ["killed", "killed frozen", "shared"] {
            watch(ending);
        }
        return;
    };
    let server = SHARED.get_or_init(|| RedisServer::start(Flavor::Redis));
    if ending == "killed frozen" {
        server.stop();
    }
    Peer::report(&server.pid().to_string());
    // Waits until standard input is closed or this process is killed.
    let _ = Peer::read_line();
}

fn watch(ending: &str) {
    let name = "launch::orphans::no_server_outlives_its_test";
    let mut peer = Peer::spawn(name, &[(ENDING, ending)]);
    let server: u32 = peer.line().parse().unwrap();
    assert!(is_alive(server));
    let folder: PathBuf = std::fs::read_link(proc(server).join("cwd")).unwrap();
    assert!(folder.join("server.conf").exists());
    if ending == "shared" {
        assert_eq!(peer.finish(), [] as [&str; 0]);
    } else {
        peer.kill();
    }
    wait_until("the server to end", || (!is_alive(server)).then_some(()));
    wait_until("its folder to be removed", || (!folder.exists()).then_some(()));
}
