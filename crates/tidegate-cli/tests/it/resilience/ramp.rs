//! R349: the rate of calls grows from a floor to the limit.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::upstream::{Gateway, Upstream};

const PATH: &str = "/openai/v1/chat/completions";
const CALLERS: usize = 8;

/// Makes calls from several threads until the provider has received `calls`.
fn call_until(gateway: &Gateway, upstream: &Upstream, calls: usize) {
    let caller = &gateway.caller;
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                while upstream.seen().times.len() < calls {
                    assert_eq!(caller.call(PATH, "tidal-1", &[]).status, 200);
                }
            });
        }
    });
}

fn file(url: &str, ramp: &str) -> String {
    format!("[providers.openai]\nbase_url = \"{url}\"\nrequests_per_minute = 6000\n{ramp}\n")
}

/// Setting: providers.*.ramp_up, providers.*.ramp_floor
#[test]
fn rate_grows_from_the_floor_to_the_limit() {
    let upstream = Upstream::start();
    let ramp = "ramp_up = \"4s\"\nramp_floor = 300";
    let gateway = Gateway::start(&file(&upstream.url, ramp));
    call_until(&gateway, &upstream, 150);
    let seen = upstream.seen();
    let span = |from: usize, to: usize| seen.times[to] - seen.times[from];
    // From 5 to 100 per second: the first 20 calls take about a second, those after the hundredth a
    // third of that.
    assert!(span(0, 20) > Duration::from_millis(600), "{:?}", span(0, 20));
    assert!(span(100, 120) < span(0, 20) / 2, "{:?} {:?}", span(0, 20), span(100, 120));
}

#[test]
fn disabling_the_ramp_takes_effect_immediately() {
    let upstream = Upstream::start();
    let ramp = "ramp_up = \"10m\"\nramp_floor = 60";
    let gateway = Gateway::start(&file(&upstream.url, ramp));
    call_until(&gateway, &upstream, 2);
    let seen = upstream.seen();
    let first = seen.times[1] - seen.times[0];
    assert!(first > Duration::from_millis(700), "one per second at first: {first:?}");
    drop(seen);
    gateway.change(&json!({ "providers": { "openai": { "ramp_up": "0s" } } }));
    let before = upstream.seen().times.len();
    call_until(&gateway, &upstream, before + 60);
    let seen = upstream.seen();
    let took = seen.times[before + 59] - seen.times[before];
    assert!(took < Duration::from_secs(20), "{took:?}");
}
