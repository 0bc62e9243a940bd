//! Calendar quotas and allowances.

use tidegate_core::{
    Charge, ChargeError, Correction, Limit, Operation, Policy, Retry, StoreError, Target, Windows,
};

use super::stage::{SECOND, Stage, bucket, named};
use crate::scenario::replay::windows;
use crate::scenario::step::ORIGIN_NS;
use crate::subject::Subject;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn daily(amount: u64) -> Limit {
    named("daily", Policy::quota(amount).expect("a valid policy"))
}

/// The windows around so many milliseconds after the start.
fn days_around(millis: u64) -> Windows {
    windows(86_400, ORIGIN_NS + millis * 1_000_000)
}

fn charge(limit: &Limit, cost: u64, around: Windows) -> [Charge<'_>; 1] {
    [Charge { target: Target::new(limit, "a").with_windows(around), cost }]
}

/// A quota counts in its window and starts anew with the next.
pub async fn a_quota_counts_by_window(subject: &dyn Subject) {
    let (stage, limit) = (Stage(subject), daily(5));
    stage.at(HOUR).await;
    let today = days_around(HOUR);
    let decision = stage.take(&charge(&limit, 3, today)).await;
    assert_eq!((decision.is_allowed(), decision.remaining()), (true, 2));
    assert_eq!(decision.outcomes()[0].reset, Some(23 * 3_600 * SECOND));
    let retry = stage.take(&charge(&limit, 3, today)).await.retry();
    assert_eq!(retry, Some(Retry::After(23 * 3_600 * SECOND)), "when the window ends");
    assert_eq!(stage.take(&charge(&limit, 6, today)).await.retry(), Some(Retry::Never));
    stage.at(DAY).await;
    assert_eq!(stage.take(&charge(&limit, 3, days_around(DAY))).await.remaining(), 2);
}

/// The store picks the window by its own clock, whatever the caller's says.
pub async fn the_store_picks_the_window(subject: &dyn Subject) {
    let (stage, limit) = (Stage(subject), daily(5));
    stage.at(DAY - HOUR).await;
    assert_eq!(stage.take(&charge(&limit, 3, days_around(DAY))).await.remaining(), 2);
    assert_eq!(stage.take(&charge(&limit, 1, days_around(0))).await.remaining(), 1);
    stage.at(DAY).await;
    assert_eq!(stage.take(&charge(&limit, 1, days_around(0))).await.remaining(), 4);
    // Back across the boundary by a little: what was used in the later window counts on.
    stage.at(DAY - 1).await;
    assert_eq!(stage.take(&charge(&limit, 1, days_around(0))).await.remaining(), 3);
}

/// Windows are needed, and must hold the store's time.
pub async fn windows_are_checked(subject: &dyn Subject) {
    let (stage, limit, client) = (Stage(subject), daily(5), bucket("client", 1, 10));
    stage.at(0).await;
    let refused = |error: StoreError, what: ChargeError| match error {
        StoreError::Charge(error) => assert_eq!(error, what),
        other => panic!("{other:?} instead of {what:?}"),
    };
    let list = [Charge::new(&client, "a", 1), Charge::new(&limit, "a", 1)];
    refused(stage.error(Operation::Take(&list)).await, ChargeError::NoWindows(1));
    let far = charge(&limit, 1, days_around(9 * DAY));
    refused(stage.error(Operation::Take(&far)).await, ChargeError::OtherWindows(0));
    assert_eq!(stage.left(&client, "a").await, 10, "nothing was spent");
}

/// A refund for an earlier window is dropped; one for this window counts.
pub async fn a_refund_for_an_earlier_window_is_dropped(subject: &dyn Subject) {
    let (stage, limit) = (Stage(subject), daily(5));
    stage.at(0).await;
    let receipt = stage.spend(&charge(&limit, 4, days_around(0))).await.receipt;
    let back = |around| {
        let target = Target::new(&limit, "a").with_windows(around);
        [Correction { target, delta: -1 }]
    };
    let settlement = stage.settle(&back(days_around(0)), Some(&receipt)).await;
    assert_eq!((settlement.dropped, settlement.outcomes[0].remaining), (0, 2));
    stage.at(DAY).await;
    assert!(stage.take(&charge(&limit, 1, days_around(DAY))).await.is_allowed());
    let settlement = stage.settle(&back(days_around(DAY)), Some(&receipt)).await;
    assert_eq!((settlement.dropped, settlement.outcomes[0].remaining), (1, 4));
}

/// A reservation never books a later window.
pub async fn a_reservation_stays_in_its_window(subject: &dyn Subject) {
    let (stage, limit, client) = (Stage(subject), daily(5), bucket("client", 1, 10));
    stage.at(DAY - 5_000).await;
    assert!(stage.take_of(&client, "a", 10).await.is_allowed());
    let list = |tokens| {
        let [quota] = charge(&limit, 1, days_around(DAY - 5_000));
        [quota, Charge::new(&client, "a", tokens)]
    };
    assert!(!stage.reserve(&list(5), 60 * SECOND).await.is_allowed(), "midnight is too late");
    assert!(stage.reserve(&list(4), 60 * SECOND).await.is_allowed());
}

/// An allowance does not refill; it ends with a reset.
pub async fn an_allowance_does_not_refill(subject: &dyn Subject) {
    let stage = Stage(subject);
    let limit = named("total", Policy::allowance(5).expect("a valid policy"));
    stage.at(0).await;
    let decision = stage.take_of(&limit, "a", 4).await;
    assert_eq!((decision.remaining(), decision.outcomes()[0].reset), (1, None));
    stage.at(1_000 * DAY).await;
    let decision = stage.take_of(&limit, "a", 2).await;
    assert_eq!((decision.remaining(), decision.retry()), (1, Some(Retry::Never)));
    assert!(stage.reset(Target::new(&limit, "a")).await);
    assert_eq!(stage.take_of(&limit, "a", 5).await.remaining(), 0);
    let settlement = stage.settle(&[Correction::new(&limit, "a", -2)], None).await;
    assert_eq!(settlement.outcomes[0].remaining, 2);
}
