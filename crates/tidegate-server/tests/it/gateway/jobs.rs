//! Jobs of many calls to a provider that limits them.

use tidegate_sim::Limits;
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};

use super::{Fixture, account, assert_all_ok, responses};

/// R391: with defaults, twelve concurrent jobs get no 429 from a provider with tight limits.
#[test]
fn no_job_sees_a_429_with_defaults() {
    let limits = Limits::new().requests_per_minute(6_000).concurrency(5);
    let fixture = Fixture::new(account(20, limits), "", "");
    let replies = std::thread::scope(|scope| responses(fixture.callers(scope, 12, 10)));
    assert_all_ok(&replies);
    fixture.wait_for_gauge("in_flight", 0);
}

/// G1: the limits of a configured API key are in the shared store; without it the failure rule
/// `local` decides.
#[test]
fn calls_continue_without_the_shared_store() {
    let redis = RedisServer::start(Flavor::Redis);
    let store = format!("[store]\nurl = {:?}\n", redis.url());
    let settings = "api_key_env = \"PROVIDER_KEY\"\nrequests_per_minute = 6000\n\
                    max_concurrent_requests = 4\n";
    let fixture = Fixture::new(account(1, Limits::new()), settings, &store);
    assert_all_ok(&[fixture.call()]);
    assert!(redis.info("keyspace").contains_key("db0"), "its limits are in the store");
    redis.kill();
    let replies = std::thread::scope(|scope| responses(fixture.callers(scope, 6, 5)));
    assert_all_ok(&replies);
    let degraded = "tidegate_store_degraded{store=\"shared\"} 1";
    assert!(fixture.server.admin_get("/metrics").body.contains(degraded));
    redis.restart();
    wait_until("the store to be used again", || {
        fixture.call();
        redis.info("keyspace").contains_key("db0").then_some(())
    });
}
