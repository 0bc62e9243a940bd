//! Rules found out from reports, admissions and refusals, at instants that each test names.

use super::*;

const LIMIT: Option<Allowed> = Some(Allowed::per_minute(90_000));

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn call(reserve: u64) -> TokenCharge {
    TokenCharge { input: 10, reserve }
}

/// Twenty-two calls of 4,000 tokens leave together, and use 50 each.
fn burst(inference: &mut ChargeInference) -> Vec<Departure> {
    (0..22).map(|_| inference.leaves(LIMIT, call(4_000), at(0))).collect()
}

#[test]
fn a_provider_that_gives_back_is_found_out_by_the_first_call_after_a_burst() {
    let mut inference = ChargeInference::new(OutputCharge::Kept);
    let calls = burst(&mut inference);
    for departure in &calls {
        inference.ended(departure, Some(50), at(1_000));
        // Its report may be of the moment when it left.
        assert!(!inference.reported(88_900, departure, at(1_000)));
    }
    let later = inference.leaves(LIMIT, call(4_000), at(2_000));
    inference.ended(&later, Some(50), at(3_000));
    assert!(inference.reported(89_950, &later, at(3_000)));
    assert_eq!(inference.rule(), OutputCharge::GivenBack);
    let gained = inference.take_gain();
    assert!((80_000..88_000).contains(&gained), "{gained}");
    assert_eq!(inference.take_gain(), 0, "once");
}

#[test]
fn a_provider_that_reserves_nothing_is_found_out_while_calls_are_under_way() {
    for rule in [OutputCharge::Kept, OutputCharge::GivenBack] {
        let mut inference = ChargeInference::new(rule);
        burst(&mut inference);
        let later = inference.leaves(LIMIT, call(4_000), at(2_000));
        inference.reported(89_700, &later, at(2_500));
        assert_eq!(inference.rule(), OutputCharge::GivenBack);
        assert!(inference.reported(89_700, &later, at(3_000)));
        assert_eq!(inference.rule(), OutputCharge::AtEnd);
    }
}

/// Their answers are on the way when another call is told what is left.
#[test]
fn calls_that_have_just_ended_explain_what_was_given_back() {
    let mut inference = ChargeInference::new(OutputCharge::GivenBack);
    let calls = burst(&mut inference);
    let later = inference.leaves(LIMIT, call(4_000), at(2_000));
    inference.reported(89_700, &later, at(2_500));
    for departure in &calls {
        inference.ended(departure, Some(50), at(2_510));
    }
    inference.reported(89_900, &later, at(3_000));
    assert_eq!(inference.rule(), OutputCharge::GivenBack);
}

#[test]
fn a_provider_that_keeps_its_charges_is_believed() {
    let mut inference = ChargeInference::new(OutputCharge::Kept);
    for departure in burst(&mut inference) {
        inference.ended(&departure, Some(50), at(1_000));
    }
    assert!(inference.expects_refunds());
    for second in 2..6 {
        let departure = inference.leaves(LIMIT, call(100), at(second * 1_000));
        let left = inference.level(at(second * 1_000));
        assert!(!inference.reported(to_u64(left), &departure, at(second * 1_000 + 300)));
    }
    assert_eq!(inference.rule(), OutputCharge::Kept);
    assert!(!inference.expects_refunds(), "its reports agree with it");
}

#[test]
fn others_that_use_the_key_change_no_rule() {
    let mut inference = ChargeInference::new(OutputCharge::Kept);
    burst(&mut inference);
    let later = inference.leaves(LIMIT, call(100), at(5_000));
    assert!(!inference.reported(0, &later, at(5_100)));
    assert_eq!(inference.rule(), OutputCharge::Kept);
}

#[test]
fn a_call_that_a_rule_would_refuse_disproves_it_when_it_is_admitted() {
    let mut inference = ChargeInference::new(OutputCharge::GivenBack);
    let limit = Some(Allowed::per_minute(8_000));
    let departure = inference.leaves(limit, call(16_000), at(0));
    assert!(inference.admitted(&departure, at(10)));
    assert_eq!(inference.rule(), OutputCharge::AtEnd);
}

#[test]
fn a_wait_is_probed_and_what_is_not_refused_in_a_second_was_admitted() {
    let mut inference = ChargeInference::new(OutputCharge::GivenBack);
    let limit = Some(Allowed::per_minute(8_000));
    let first = inference.leaves(limit, call(7_000), at(0));
    assert_eq!(inference.waited(7_000, at(1_000)), Probing::Wait, "nothing was reported yet");
    inference.reported(1_000, &first, at(1_000));
    assert_eq!(inference.waited(7_000, at(1_000)), Probing::Probe);
    let probe = inference.leaves(limit, call(7_000), at(1_000));
    assert_eq!(probe.rule, OutputCharge::GivenBack);
    assert_eq!(inference.waited(7_000, at(1_500)), Probing::Wait);
    assert_eq!(inference.waited(7_000, at(2_000)), Probing::Changed);
    assert_eq!(inference.rule(), OutputCharge::AtEnd);
}

#[test]
fn a_probe_that_is_refused_is_not_repeated_for_a_while() {
    let mut inference = ChargeInference::new(OutputCharge::GivenBack);
    let limit = Some(Allowed::per_minute(8_000));
    let first = inference.leaves(limit, call(7_000), at(0));
    inference.reported(1_000, &first, at(500));
    let probe = inference.leaves(limit, call(7_000), at(1_000));
    inference.refused(&probe, at(1_050));
    assert_eq!(inference.rule(), OutputCharge::GivenBack);
    assert_eq!(inference.waited(7_000, at(3_000)), Probing::Wait);
    assert!(!inference.reported(8_000, &probe, at(3_000)));
    inference.leaves(limit, call(7_000), at(900_000));
    assert_eq!(inference.waited(7_000, at(901_000)), Probing::Probe);
}

#[test]
fn a_refusal_leads_back_to_the_rule_that_explains_it() {
    let mut inference = ChargeInference::new(OutputCharge::AtEnd);
    burst(&mut inference);
    let too_much = inference.leaves(LIMIT, call(4_000), at(10));
    inference.refused(&too_much, at(60));
    assert_eq!(inference.rule(), OutputCharge::GivenBack);
    // Others of the same burst say nothing about the rule that it led to.
    inference.refused(&too_much, at(60));
    assert_eq!(inference.rule(), OutputCharge::GivenBack);
}

/// A limit of slices, or others on the same key: no rule of ours explains it.
#[test]
fn a_refusal_that_no_rule_explains_changes_none() {
    let mut inference = ChargeInference::new(OutputCharge::AtEnd);
    let departure = inference.leaves(LIMIT, call(4_000), at(0));
    inference.refused(&departure, at(60));
    assert_eq!(inference.rule(), OutputCharge::AtEnd);
    assert_eq!(inference.level(at(60)).round(), 90_000.0);
}

#[test]
fn an_account_that_is_busy_is_not_probed() {
    let mut inference = ChargeInference::new(OutputCharge::Kept);
    for second in 0..10 {
        let departure = inference.leaves(LIMIT, call(9_000), at(second));
        inference.ended(&departure, Some(9_000), at(second));
    }
    assert_eq!(inference.waited(8_000, at(2_000)), Probing::Wait);
}
