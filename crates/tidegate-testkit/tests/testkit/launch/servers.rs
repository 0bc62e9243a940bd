//! Redis and Valkey: starting, commands, killing, restarting, freezing.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::process::Command;

use tidegate_testkit::launch::{Flavor, RedisBuilder, RedisServer, Reply};

use super::{is_alive, state};

fn ok() -> Reply {
    Reply::Text("OK".to_owned())
}

fn on_both(test: impl Fn(fn() -> RedisBuilder)) {
    test(|| RedisServer::builder(Flavor::Redis));
    test(|| RedisServer::builder(Flavor::Valkey));
}

/// The Debian package of Redis comes with this client, and it knows TLS.
fn client(server: &RedisServer, options: &[&str], words: &[&str]) -> String {
    let mut client = Command::new("redis-cli");
    client.args(["-h", "127.0.0.1", "-p", &server.port().to_string()]).args(options).args(words);
    let output = client.output().unwrap();
    let output_text = [output.stdout, output.stderr].concat();
    String::from_utf8(output_text).unwrap().trim().to_owned()
}

#[test]
fn each_flavor_is_what_it_says() {
    let named = |flavor| RedisServer::start(flavor).info("server").remove("server_name");
    assert_eq!(named(Flavor::Valkey).as_deref(), Some("valkey"));
    assert_eq!(named(Flavor::Redis), None, "Redis does not name itself");
}

#[test]
fn a_killed_server_refuses_and_comes_back_empty_at_the_same_port() {
    on_both(|builder| {
        let server = builder().start();
        let (url, pid) = (server.url(), server.pid());
        assert_eq!(url, format!("redis://127.0.0.1:{}", server.port()));
        assert_eq!(server.command(&["SET", "key", "value"]), ok());
        server.kill();
        assert!(!is_alive(pid));
        let refused = server.try_command(&["PING"]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        server.kill();

        server.restart();
        assert_eq!(server.url(), url);
        assert_ne!(server.pid(), pid);
        assert_eq!(server.command(&["GET", "key"]), Reply::Nil, "nothing is kept on disk");
    });
}

#[test]
fn a_server_that_writes_to_disk_comes_back_with_its_data() {
    on_both(|builder| {
        let server = builder().appendonly().start();
        assert_eq!(server.command(&["SET", "key", "value"]), ok());
        server.kill();
        server.restart();
        assert_eq!(server.command(&["GET", "key"]).text(), "value");
    });
}

#[test]
fn a_frozen_server_goes_on_where_it_was() {
    on_both(|builder| {
        let server = builder().start();
        assert_eq!(server.command(&["SET", "key", "value"]), ok());
        server.stop();
        server.stop();
        assert_eq!(state(server.pid()), Some('T'));
        server.cont();
        server.cont();
        assert_ne!(state(server.pid()), Some('T'));
        assert_eq!(server.command(&["GET", "key"]).text(), "value");
        server.stop();
        let pid = server.pid();
        server.kill();
        assert!(!is_alive(pid), "a frozen server can be killed");
    });
}

#[test]
fn tls_is_served_to_clients_that_trust_the_authority() {
    on_both(|builder| {
        let server = builder().tls().start();
        assert!(server.url().starts_with("rediss://127.0.0.1:"), "{}", server.url());
        assert!(server.ca_pem().starts_with("-----BEGIN CERTIFICATE-----"));
        let ca = server.ca_file().display().to_string();
        assert_eq!(client(&server, &["--tls", "--cacert", &ca], &["PING"]), "PONG");

        let foreign = builder().tls().start().ca_pem();
        let file = server.ca_file().with_file_name("stranger.pem");
        std::fs::write(&file, foreign).unwrap();
        let ca = file.display().to_string();
        let refused = client(&server, &["--tls", "--cacert", &ca], &["PING"]);
        assert!(refused.contains("certificate verify failed"), "{refused}");
        assert_ne!(client(&server, &[], &["PING"]), "PONG", "plain text is not understood");
        assert_eq!(server.command(&["PING"]).text(), "PONG", "control commands use the plain port");
    });
}

#[test]
fn passwords_and_users_are_required() {
    on_both(|builder| {
        let line = "user app on >word ~app:* +get";
        let server = builder().password("p@ss/word").acl(line).start();
        let port = server.port();
        assert_eq!(server.url(), format!("redis://default:p%40ss%2Fword@127.0.0.1:{port}"));
        assert_eq!(server.url_as("app", "word"), format!("redis://app:word@127.0.0.1:{port}"));
        assert!(client(&server, &[], &["PING"]).starts_with("NOAUTH"));
        let url = server.url();
        assert_eq!(client(&server, &["-u", &url, "--no-auth-warning"], &["PING"]), "PONG");
        let app = ["--user", "app", "--pass", "word", "--no-auth-warning"];
        assert_eq!(client(&server, &app, &["GET", "app:1"]), "");
        assert!(client(&server, &app, &["GET", "key"]).starts_with("NOPERM"));
        assert_eq!(server.command(&["PING"]).text(), "PONG", "the test user has all permissions");
    });
}

#[test]
fn settings_reach_the_server_and_calls_are_counted() {
    on_both(|builder| {
        let server = builder().setting("maxmemory-policy", "allkeys-lru").start();
        let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"]).array();
        assert_eq!(policy[1], Reply::Text("allkeys-lru".to_owned()));
        assert_eq!(server.command_calls("get"), 0);
        assert_eq!(server.command(&["GET", "key"]), Reply::Nil);
        assert_eq!(server.command(&["INCR", "count"]).integer(), 1);
        assert!(matches!(server.command(&["GET"]), Reply::Error(_)));
        assert_eq!(server.command(&["SCRIPT", "LOAD", "return 1"]).text().len(), 40);
        assert_eq!((server.command_calls("GET"), server.command_calls("script|load")), (1, 1));
    });
}

#[test]
fn many_servers_start_at_once_and_share_nothing() {
    let start = || std::thread::spawn(|| RedisServer::start(Flavor::Redis));
    let starting: Vec<_> = (0..8).map(|_| start()).collect();
    let servers: Vec<_> = starting.into_iter().map(|thread| thread.join().unwrap()).collect();
    let ports: BTreeSet<u16> = servers.iter().map(RedisServer::port).collect();
    assert_eq!(ports.len(), 8);
    assert!(ports.iter().all(|port| *port < 32_768), "no port of outgoing connections: {ports:?}");
    assert_eq!(servers[0].command(&["SET", "key", "value"]), ok());
    assert_eq!(servers[1].command(&["GET", "key"]), Reply::Nil);
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let builder = || RedisServer::builder(Flavor::Redis).setting("no-such-setting", "1");
    let panic = catch_unwind(|| builder().start()).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("Redis did not start: it exited with"), "{text}");
    assert!(text.contains("no-such-setting"), "the report has the end of the log: {text}");
}
