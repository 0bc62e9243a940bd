//! Inference from reports, admissions and refusals at explicit times.

use super::*;

const LIMIT: Option<Allowed> = Some(Allowed::per_minute(90_000));

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn call(reserve: u64) -> TokenCharge {
    TokenCharge { input: 10, reserve }
}

/// Sends 22 calls of 4,000 tokens together.
fn burst(inference: &mut ChargeInference) -> Vec<SentCall> {
    (0..22).map(|_| inference.call_sent(LIMIT, call(4_000), at(0))).collect()
}

#[test]
fn refunding_provider_is_detected_by_the_first_call_after_a_burst() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokens);
    let calls = burst(&mut inference);
    for sent_call in &calls {
        inference.ended(sent_call, Some(50), at(1_000));
        // The report may describe the time when the call was sent.
        assert!(!inference.reported(88_900, sent_call, at(1_000)));
    }
    let later = inference.call_sent(LIMIT, call(4_000), at(2_000));
    inference.ended(&later, Some(50), at(3_000));
    assert!(inference.reported(89_950, &later, at(3_000)));
    assert_eq!(inference.rule(), OutputCharge::MaxTokensRefunded);
    let gained = inference.take_gain();
    assert!((80_000..88_000).contains(&gained), "{gained}");
    assert_eq!(inference.take_gain(), 0, "once");
}

#[test]
fn provider_without_reserves_is_detected_while_calls_are_in_flight() {
    for rule in [OutputCharge::MaxTokens, OutputCharge::MaxTokensRefunded] {
        let mut inference = ChargeInference::new(rule);
        burst(&mut inference);
        let later = inference.call_sent(LIMIT, call(4_000), at(2_000));
        inference.reported(89_700, &later, at(2_500));
        assert_eq!(inference.rule(), OutputCharge::MaxTokensRefunded);
        assert!(inference.reported(89_700, &later, at(3_000)));
        assert_eq!(inference.rule(), OutputCharge::ActualUsage);
    }
}

/// The calls end just after another response reported the remaining amount.
#[test]
fn calls_that_just_ended_explain_a_refund() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokensRefunded);
    let calls = burst(&mut inference);
    let later = inference.call_sent(LIMIT, call(4_000), at(2_000));
    inference.reported(89_700, &later, at(2_500));
    for sent_call in &calls {
        inference.ended(sent_call, Some(50), at(2_510));
    }
    inference.reported(89_900, &later, at(3_000));
    assert_eq!(inference.rule(), OutputCharge::MaxTokensRefunded);
}

#[test]
fn provider_without_refunds_is_confirmed() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokens);
    for sent_call in burst(&mut inference) {
        inference.ended(&sent_call, Some(50), at(1_000));
    }
    assert!(inference.expects_refunds());
    for second in 2..6 {
        let sent_call = inference.call_sent(LIMIT, call(100), at(second * 1_000));
        let left = inference.level(at(second * 1_000));
        assert!(!inference.reported(to_u64(left), &sent_call, at(second * 1_000 + 300)));
    }
    assert_eq!(inference.rule(), OutputCharge::MaxTokens);
    assert!(!inference.expects_refunds(), "its reports agree with it");
}

#[test]
fn other_clients_on_the_key_change_no_rule() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokens);
    burst(&mut inference);
    let later = inference.call_sent(LIMIT, call(100), at(5_000));
    assert!(!inference.reported(0, &later, at(5_100)));
    assert_eq!(inference.rule(), OutputCharge::MaxTokens);
}

#[test]
fn admitted_call_disproves_a_rule_that_would_refuse_it() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokensRefunded);
    let limit = Some(Allowed::per_minute(8_000));
    let sent_call = inference.call_sent(limit, call(16_000), at(0));
    assert!(inference.admitted(&sent_call, at(10)));
    assert_eq!(inference.rule(), OutputCharge::ActualUsage);
}

#[test]
fn probe_not_refused_within_a_second_counts_as_admitted() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokensRefunded);
    let limit = Some(Allowed::per_minute(8_000));
    let first = inference.call_sent(limit, call(7_000), at(0));
    assert_eq!(inference.waited(7_000, at(1_000)), Probing::Wait, "nothing was reported yet");
    inference.reported(1_000, &first, at(1_000));
    assert_eq!(inference.waited(7_000, at(1_000)), Probing::Probe);
    let probe = inference.call_sent(limit, call(7_000), at(1_000));
    assert_eq!(probe.rule, OutputCharge::MaxTokensRefunded);
    assert_eq!(inference.waited(7_000, at(1_500)), Probing::Wait);
    assert_eq!(inference.waited(7_000, at(2_000)), Probing::Changed);
    assert_eq!(inference.rule(), OutputCharge::ActualUsage);
}

#[test]
fn refused_probe_is_not_repeated_for_a_while() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokensRefunded);
    let limit = Some(Allowed::per_minute(8_000));
    let first = inference.call_sent(limit, call(7_000), at(0));
    inference.reported(1_000, &first, at(500));
    let probe = inference.call_sent(limit, call(7_000), at(1_000));
    inference.refused(&probe, at(1_050));
    assert_eq!(inference.rule(), OutputCharge::MaxTokensRefunded);
    assert_eq!(inference.waited(7_000, at(3_000)), Probing::Wait);
    assert!(!inference.reported(8_000, &probe, at(3_000)));
    inference.call_sent(limit, call(7_000), at(900_000));
    assert_eq!(inference.waited(7_000, at(901_000)), Probing::Probe);
}

#[test]
fn refusal_restores_the_rule_that_explains_it() {
    let mut inference = ChargeInference::new(OutputCharge::ActualUsage);
    burst(&mut inference);
    let too_much = inference.call_sent(LIMIT, call(4_000), at(10));
    inference.refused(&too_much, at(60));
    assert_eq!(inference.rule(), OutputCharge::MaxTokensRefunded);
    // Later refusals from the same burst do not count against the new rule.
    inference.refused(&too_much, at(60));
    assert_eq!(inference.rule(), OutputCharge::MaxTokensRefunded);
}

/// Sliced limits or other clients on the same key cause such refusals.
#[test]
fn unexplained_refusal_changes_no_rule() {
    let mut inference = ChargeInference::new(OutputCharge::ActualUsage);
    let sent_call = inference.call_sent(LIMIT, call(4_000), at(0));
    inference.refused(&sent_call, at(60));
    assert_eq!(inference.rule(), OutputCharge::ActualUsage);
    assert_eq!(inference.level(at(60)).round(), 90_000.0);
}

#[test]
fn busy_account_is_not_probed() {
    let mut inference = ChargeInference::new(OutputCharge::MaxTokens);
    for second in 0..10 {
        let sent_call = inference.call_sent(LIMIT, call(9_000), at(second));
        inference.ended(&sent_call, Some(9_000), at(second));
    }
    assert_eq!(inference.waited(8_000, at(2_000)), Probing::Wait);
}
