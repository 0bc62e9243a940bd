//! Costs: weights inside one policy.

use tidegate::Policy;
use tidegate_ws::{
    ErrorCode, Gate, IngressContext, MessageDecision, Peer, RefusalReason, Rule, per_user_key,
};

use crate::session::{Bench, Session, passes, passing, refused, send};

fn alice(gate: &Gate<Session>) -> tidegate_ws::Connection<Session> {
    gate.connect(Peer::new(Session::of("alice")))
}

#[test]
fn without_a_cost_a_message_is_one_token() {
    let bench = Bench::new();
    let say = bench.limiter("say", 1, 5);
    let gate = Gate::for_types(["SAY"]).limit(say.clone()).build().unwrap();
    assert!(passes(&mut alice(&gate), "SAY"));
    assert_eq!(say.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining(), 4);
}

#[test]
fn heavy_operations_weigh_more_in_a_shared_budget() {
    for weight in [5_i64, 10] {
        let bench = Bench::new();
        let rule = Rule::new(bench.limiter("all", 1, 20))
            .key(per_user_key)
            .cost(move |context| if context.message_type() == "Compute" { weight } else { 1 });
        let gate = Gate::for_types(["Compute", "SAY"]).limit(rule).build().unwrap();
        let mut connection = alice(&gate);
        assert!(passes(&mut connection, "Compute"));
        assert_eq!(passing(&mut connection, "SAY", 99), 20 - usize::try_from(weight).unwrap());
    }
}

fn by_tier(context: &IngressContext<'_, Session>) -> i64 {
    match context.data().tier {
        "basic" | "pro" => 1,
        _ => 2,
    }
}

#[test]
fn tiers_pay_by_a_table() {
    let bench = Bench::new();
    let rule = Rule::new(bench.limiter("say", 1, 10)).cost(by_tier);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    for (tier, messages) in [("free", 5), ("basic", 10), ("pro", 10)] {
        let session = Session { tier, ..Session::of(tier) };
        assert_eq!(passing(&mut gate.connect(Peer::new(session)), "SAY", 99), messages, "{tier}");
    }
}

#[test]
fn premium_users_have_a_policy_of_their_own() {
    let bench = Bench::new();
    let premium = bench.limiter("premium", 100, 1_000);
    let free = bench.limiter("free", 10, 100);
    let rule = Rule::<Session>::new(premium)
        .key(per_user_key)
        .when(|context| context.data().tier == "premium")
        .otherwise(Rule::new(free).key(per_user_key));
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(passing(&mut connection, "SAY", 2_000), 100);
    // The same user, who has paid meanwhile, has another budget, and all of it.
    connection.data_mut().tier = "premium";
    assert_eq!(passing(&mut connection, "SAY", 2_000), 1_000);
    connection.data_mut().tier = "free";
    assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate);
}

#[test]
fn of_a_chain_the_first_rule_whose_condition_holds_is_charged() {
    let bench = Bench::new();
    let (gold, silver, rest) =
        (bench.limiter("gold", 1, 3), bench.limiter("silver", 1, 2), bench.limiter("rest", 1, 1));
    let rule = Rule::<Session>::new(gold)
        .when(|context| context.data().tier == "gold")
        .otherwise(Rule::<Session>::new(silver).when(|context| context.data().tier == "silver"))
        .otherwise(rest);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    for (tier, messages) in [("gold", 3), ("silver", 2), ("other", 1)] {
        let session = Session { tier, ..Session::of(tier) };
        assert_eq!(passing(&mut gate.connect(Peer::new(session)), "SAY", 9), messages, "{tier}");
    }
}

#[test]
fn costs_do_not_isolate_and_types_in_keys_do() {
    let types = ["Query", "Report"];
    let weigh = |context: &IngressContext<'_, Session>| {
        if context.message_type() == "Report" { 5 } else { 1 }
    };
    let bench = Bench::new();
    let shared = Rule::new(bench.limiter("shared", 1, 10)).key(per_user_key).cost(weigh);
    let gate = Gate::for_types(types).limit(shared).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(passing(&mut connection, "Report", 9), 2);
    assert_eq!(refused(&mut connection, "Query"), RefusalReason::Rate, "reports starve queries");

    let apart = Rule::new(bench.limiter("apart", 1, 10)).cost(weigh);
    let gate = Gate::for_types(types).limit(apart).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(passing(&mut connection, "Report", 9), 2);
    assert_eq!(passing(&mut connection, "Query", 99), 10, "queries have a bucket of their own");
}

#[test]
fn a_bad_cost_spends_nothing_anywhere_and_leaves_the_connection_open() {
    let bench = Bench::new();
    let (sound, odd) = (bench.limiter("sound", 1, 10), bench.limiter("odd", 1, 10));
    let gate = Gate::for_types(["SAY", "PING"])
        .limit(sound)
        .limit(Rule::new(odd).cost(|context| i64::from(context.message_type() == "PING")))
        .on_exceeded(tidegate_ws::OnExceeded::Close { code: None })
        .build()
        .unwrap();
    let mut connection = alice(&gate);
    let MessageDecision::Refused(refusal) = send(&mut connection, "SAY") else {
        panic!("accepted")
    };
    assert_eq!(
        (refusal.reason(), refusal.code()),
        (RefusalReason::Cost, ErrorCode::InvalidArgument)
    );
    assert!(matches!(refusal.reply(), tidegate_ws::ReplyFrame::Send(_)));
    assert_eq!(refusal.exceeded(), None);
    assert_eq!(bench.buckets(), 0);
    assert!(passes(&mut connection, "PING"));
}

#[test]
fn zero_is_free_of_charge_if_that_is_asked_for() {
    let bench = Bench::new();
    let rule = |bench: &Bench| {
        Rule::new(bench.limiter("say", 1, 1)).cost(|context| match context.message_type() {
            "PING" => 0,
            "ODD" => -1,
            _ => 1,
        })
    };
    let gate =
        Gate::for_types(["SAY", "PING", "ODD"]).limit(rule(&bench)).allow_zero_cost().build();
    let gate = gate.unwrap();
    let mut connection = alice(&gate);
    assert_eq!(passing(&mut connection, "PING", 50), 50);
    assert_eq!(bench.buckets(), 0);
    assert_eq!(passing(&mut connection, "SAY", 50), 1);
    assert!(passes(&mut connection, "PING"));
    assert_eq!(refused(&mut connection, "ODD"), RefusalReason::Cost);
}

#[test]
fn parts_of_a_token_are_counted_in_smaller_units() {
    let bench = Bench::new();
    // Two tokens in thousandths, and half a token for each message.
    let policy = Policy::per_second(1_000).capacity(2_000).build().unwrap();
    let rule = Rule::new(bench.limiter_of("milli", policy)).cost(|_| 500);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(passing(&mut connection, "SAY", 99), 4);
    bench.clock.advance(std::time::Duration::from_millis(500));
    assert_eq!(passing(&mut connection, "SAY", 99), 1);
}

#[test]
fn a_policy_changes_under_a_gate_that_knows_none() {
    let bench = Bench::new();
    let say = bench.limiter("say", 1, 2);
    let gate = Gate::for_types(["SAY"]).limit(say.clone()).build().unwrap();
    let mut connection = alice(&gate);
    let wider = Policy::per_second(1).capacity(7).build().unwrap();
    say.reconfigure(wider, tidegate::Change::Reset).unwrap();
    assert_eq!(passing(&mut connection, "SAY", 99), 7);
}
