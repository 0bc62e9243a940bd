//! How many commands a decision costs, and what becomes of the script.

use tidegate_core::{Answers, Charge, Operation, Store as _};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer};
use tidegate_testkit::subject::block_on;

use crate::fixture::{granted, left, open, prefix, runtime, slow, store, take};

/// Calls that are not heartbeats: those touch the nodes' sorted set.
fn decisions(server: &RedisServer) -> u64 {
    server.calls_of("evalsha") + server.calls_of("eval") - server.calls_of("zcard")
}

/// R184, R185: two limiters, one connection, one command for each decision, whatever the list.
#[test]
fn a_decision_is_one_command_on_one_connection() {
    let server = RedisServer::start(Flavor::Redis);
    block_on(async {
        let store = store(&server).await;
        let (cheap, dear) = (slow("cheap", 200), slow("dear", 10));
        // The first use of a limit enrols it.
        let list =
            [Charge::new(&cheap, "a", 1), Charge::new(&dear, "a", 5), Charge::new(&dear, "b", 1)];
        let mut answers = Answers::new();
        store.submit(&[Operation::Take(&list)], &mut answers).await;
        let before = decisions(&server);
        for _ in 0..3 {
            let mut answers = Answers::new();
            store.submit(&[Operation::Take(&list[..1])], &mut answers).await;
            store.submit(&[Operation::Peek(&list)], &mut answers).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
        assert_eq!(decisions(&server) - before, 6);
        // One connection of the store; the other one asks.
        let clients = server.command(&["CLIENT", "LIST"]).text();
        assert_eq!(clients.lines().count(), 2, "{clients}");
    });
}

/// R194, R195: a hundred first calls at once load the script once.
#[test]
fn many_first_calls_load_the_script_once() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow("client", 40);
    let allowed = block_on(async {
        let store = store(&server).await;
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let (store, limit) = (store.clone(), limit.clone());
                runtime()
                    .spawn(async move { take(&store, &limit, "a", 1).await.unwrap().is_allowed() })
            })
            .collect();
        let mut allowed = 0;
        for call in calls {
            allowed += u64::from(call.await.unwrap());
        }
        allowed
    });
    assert_eq!(allowed, 40);
    assert_eq!(server.calls_of("script|load"), 1);
    // They waited for the same call, and then went together.
    assert!(decisions(&server) < 50, "{} calls", decisions(&server));
}

/// R196: the script is gone; the next decision succeeds and nothing is spent twice.
#[test]
fn a_forgotten_script_is_loaded_once_more() {
    let server = RedisServer::start(Flavor::Valkey);
    let limit = slow("client", 10);
    block_on(async {
        let store = store(&server).await;
        granted(&store, &limit, "a", 1).await;
        assert_eq!(server.calls_of("script|load"), 1);
        let _ = server.command(&["SCRIPT", "FLUSH"]);
        let before = server.calls_of("evalsha");
        assert_eq!(granted(&store, &limit, "a", 1).await.outcomes[0].remaining, 8);
        assert_eq!(server.calls_of("script|load"), 2);
        // One that found no script, one that did. A heartbeat may have come in between.
        assert!(server.calls_of("evalsha") - before >= 2);
    });
}

/// Where SCRIPT is not permitted the source goes with every call.
#[test]
fn where_scripts_cannot_be_loaded_they_are_sent() {
    let acl = "user plain on >secret ~* +@all -script";
    let server = RedisServer::builder(Flavor::Redis).acl(acl).start();
    let limit = slow("client", 10);
    block_on(async {
        let url = server.url_as("plain", "secret");
        let store = open(RedisStore::builder(&url).prefix(prefix())).await;
        for expected in [9, 8, 7] {
            assert_eq!(granted(&store, &limit, "a", 1).await.outcomes[0].remaining, expected);
        }
        assert_eq!(left(&store, &limit, "a").await, 7);
    });
    assert!(server.calls_of("eval") >= 4);
    assert_eq!(server.calls_of("evalsha"), 0);
}
