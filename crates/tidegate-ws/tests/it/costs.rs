//! Costs: weights within one policy.

use tidegate::Policy;
use tidegate_ws::{
    ErrorCode, Gate, IngressContext, MessageDecision, MessageRule, Peer, RefusalReason,
    per_user_key,
};

use crate::fixture::{Fixture, Session, accepted_count, is_accepted, refusal_reason, send};

fn alice(gate: &Gate<Session>) -> tidegate_ws::Connection<Session> {
    gate.connect(Peer::new(Session::of("alice")))
}

#[test]
fn default_cost_is_one_token() {
    let fixture = Fixture::new();
    let say = fixture.limiter("say", 1, 5);
    let gate = Gate::for_types(["SAY"]).limit(say.clone()).build().unwrap();
    assert!(is_accepted(&mut alice(&gate), "SAY"));
    assert_eq!(say.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining(), 4);
}

#[test]
fn costs_weight_types_in_a_shared_bucket() {
    for weight in [5_i64, 10] {
        let fixture = Fixture::new();
        let rule = MessageRule::new(fixture.limiter("all", 1, 20))
            .key(per_user_key)
            .cost(move |context| if context.message_type() == "Compute" { weight } else { 1 });
        let gate = Gate::for_types(["Compute", "SAY"]).limit(rule).build().unwrap();
        let mut connection = alice(&gate);
        assert!(is_accepted(&mut connection, "Compute"));
        assert_eq!(
            accepted_count(&mut connection, "SAY", 99),
            20 - usize::try_from(weight).unwrap()
        );
    }
}

fn by_tier(context: &IngressContext<'_, Session>) -> i64 {
    match context.data().tier {
        "basic" | "pro" => 1,
        _ => 2,
    }
}

#[test]
fn cost_can_depend_on_the_tier() {
    let fixture = Fixture::new();
    let rule = MessageRule::new(fixture.limiter("say", 1, 10)).cost(by_tier);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    for (tier, messages) in [("free", 5), ("basic", 10), ("pro", 10)] {
        let session = Session { tier, ..Session::of(tier) };
        assert_eq!(
            accepted_count(&mut gate.connect(Peer::new(session)), "SAY", 99),
            messages,
            "{tier}"
        );
    }
}

#[test]
fn premium_users_have_their_own_policy() {
    let fixture = Fixture::new();
    let premium = fixture.limiter("premium", 100, 1_000);
    let free = fixture.limiter("free", 10, 100);
    let rule = MessageRule::<Session>::new(premium)
        .key(per_user_key)
        .when(|context| context.data().tier == "premium")
        .otherwise(MessageRule::new(free).key(per_user_key));
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(accepted_count(&mut connection, "SAY", 2_000), 100);
    // After an upgrade the same user has another, full bucket.
    connection.data_mut().tier = "premium";
    assert_eq!(accepted_count(&mut connection, "SAY", 2_000), 1_000);
    connection.data_mut().tier = "free";
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
}

#[test]
fn first_matching_rule_of_a_chain_is_charged() {
    let fixture = Fixture::new();
    let (gold, silver, rest) = (
        fixture.limiter("gold", 1, 3),
        fixture.limiter("silver", 1, 2),
        fixture.limiter("rest", 1, 1),
    );
    let rule = MessageRule::<Session>::new(gold)
        .when(|context| context.data().tier == "gold")
        .otherwise(
            MessageRule::<Session>::new(silver).when(|context| context.data().tier == "silver"),
        )
        .otherwise(rest);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    for (tier, messages) in [("gold", 3), ("silver", 2), ("other", 1)] {
        let session = Session { tier, ..Session::of(tier) };
        assert_eq!(
            accepted_count(&mut gate.connect(Peer::new(session)), "SAY", 9),
            messages,
            "{tier}"
        );
    }
}

#[test]
fn keys_isolate_types_and_costs_do_not() {
    let types = ["Query", "Report"];
    let weight_by_type = |context: &IngressContext<'_, Session>| {
        if context.message_type() == "Report" { 5 } else { 1 }
    };
    let fixture = Fixture::new();
    let shared =
        MessageRule::new(fixture.limiter("shared", 1, 10)).key(per_user_key).cost(weight_by_type);
    let gate = Gate::for_types(types).limit(shared).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(accepted_count(&mut connection, "Report", 9), 2);
    assert_eq!(
        refusal_reason(&mut connection, "Query"),
        RefusalReason::Rate,
        "reports starve queries"
    );

    let separate = MessageRule::new(fixture.limiter("separate", 1, 10)).cost(weight_by_type);
    let gate = Gate::for_types(types).limit(separate).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(accepted_count(&mut connection, "Report", 9), 2);
    assert_eq!(accepted_count(&mut connection, "Query", 99), 10, "queries have their own bucket");
}

#[test]
fn invalid_cost_spends_nothing_and_keeps_the_connection_open() {
    let fixture = Fixture::new();
    let (valid, invalid) = (fixture.limiter("valid", 1, 10), fixture.limiter("invalid", 1, 10));
    let gate = Gate::for_types(["SAY", "PING"])
        .limit(valid)
        .limit(
            MessageRule::new(invalid).cost(|context| i64::from(context.message_type() == "PING")),
        )
        .on_exceeded(tidegate_ws::OnExceeded::Close { code: None })
        .build()
        .unwrap();
    let mut connection = alice(&gate);
    let MessageDecision::Refused(refusal) = send(&mut connection, "SAY") else {
        panic!("accepted")
    };
    assert_eq!(
        (refusal.reason(), refusal.code()),
        (RefusalReason::InvalidCost, ErrorCode::InvalidArgument)
    );
    assert!(matches!(refusal.reply(), tidegate_ws::ReplyFrame::Send(_)));
    assert_eq!(refusal.exceeded(), None);
    assert_eq!(fixture.buckets(), 0);
    assert!(is_accepted(&mut connection, "PING"));
}

#[test]
fn zero_cost_is_free_if_allowed() {
    let fixture = Fixture::new();
    let rule = |fixture: &Fixture| {
        MessageRule::new(fixture.limiter("say", 1, 1)).cost(|context| {
            match context.message_type() {
                "PING" => 0,
                "ODD" => -1,
                _ => 1,
            }
        })
    };
    let gate =
        Gate::for_types(["SAY", "PING", "ODD"]).limit(rule(&fixture)).allow_zero_cost().build();
    let gate = gate.unwrap();
    let mut connection = alice(&gate);
    assert_eq!(accepted_count(&mut connection, "PING", 50), 50);
    assert_eq!(fixture.buckets(), 0);
    assert_eq!(accepted_count(&mut connection, "SAY", 50), 1);
    assert!(is_accepted(&mut connection, "PING"));
    assert_eq!(refusal_reason(&mut connection, "ODD"), RefusalReason::InvalidCost);
}

#[test]
fn fractions_of_a_token_use_smaller_units() {
    let fixture = Fixture::new();
    // Two tokens in thousandths, and half a token for each message.
    let policy = Policy::per_second(1_000).capacity(2_000).build().unwrap();
    let rule = MessageRule::new(fixture.limiter_with("milli", policy)).cost(|_| 500);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut connection = alice(&gate);
    assert_eq!(accepted_count(&mut connection, "SAY", 99), 4);
    fixture.clock.advance(std::time::Duration::from_millis(500));
    assert_eq!(accepted_count(&mut connection, "SAY", 99), 1);
}

#[test]
fn policy_change_applies_to_an_existing_gate() {
    let fixture = Fixture::new();
    let say = fixture.limiter("say", 1, 2);
    let gate = Gate::for_types(["SAY"]).limit(say.clone()).build().unwrap();
    let mut connection = alice(&gate);
    let wider = Policy::per_second(1).capacity(7).build().unwrap();
    say.reconfigure(wider, tidegate::PolicyChange::Reset).unwrap();
    assert_eq!(accepted_count(&mut connection, "SAY", 99), 7);
}
