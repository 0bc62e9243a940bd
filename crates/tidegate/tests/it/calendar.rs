//! Calendar quotas, by wall clock and time zone.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, MemoryStore, Retry, Schedule};
use tidegate_core::WallTime;

#[test]
fn a_daily_quota_resets_at_midnight_of_its_zone() {
    let clock = ManualClock::new();
    // 2026-11-16 07:00 UTC: an hour before midnight in Los Angeles.
    clock.set_wall(WallTime::from_secs(1_794_812_400));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let schedule = Schedule::daily("America/Los_Angeles").unwrap();
    let daily = engine.calendar("daily", 3, schedule).unwrap();

    assert_eq!(daily.take("x").cost(3).now().unwrap().remaining(), 0);
    let denied = daily.take("x").now().unwrap();
    assert_eq!(denied.retry(), Some(Retry::After(Duration::from_secs(3_600))));
    clock.advance(Duration::from_secs(3_599));
    assert!(!daily.take("x").now().unwrap().is_allowed());
    clock.advance(Duration::from_secs(1));
    assert_eq!(daily.take("x").now().unwrap().remaining(), 2);
    assert_eq!(daily.settle("x", -1, None).now().unwrap().outcomes[0].remaining, 3);
}

#[test]
fn a_refund_for_yesterday_is_dropped() {
    let clock = ManualClock::new();
    clock.set_wall(WallTime::from_secs(1_794_812_400));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let daily = engine.calendar("daily", 3, Schedule::daily("UTC").unwrap()).unwrap();
    let grant = daily.take("x").cost(2).now().unwrap().granted().unwrap();
    clock.advance(Duration::from_secs(86_400));
    let _ = daily.take("x").cost(3).now().unwrap();
    let settled = daily.settle("x", -2, Some(&grant.receipt)).now().unwrap();
    assert_eq!((settled.dropped, settled.outcomes[0].remaining), (1, 0));
}

/// A manual clock starts at the first second of 1970, before which there is no window.
#[test]
fn quotas_work_from_the_first_second_of_a_clock() {
    for zone in ["UTC", "Europe/Lisbon", "America/Los_Angeles", "Asia/Tokyo"] {
        for period in ["day", "week", "month", "year"] {
            let clock = ManualClock::new();
            let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
            let schedule = Schedule::every(period, zone).unwrap();
            let quota = Engine::on(store).calendar("quota", 3, schedule).unwrap();
            assert_eq!(quota.take("x").cost(3).now().unwrap().remaining(), 0, "{period} {zone}");
            assert!(!quota.take("x").now().unwrap().is_allowed());
            clock.advance(Duration::from_secs(366 * 86_400));
            assert_eq!(quota.take("x").now().unwrap().remaining(), 2, "{period} {zone}");
        }
    }
}

#[test]
fn a_name_has_one_schedule() {
    let engine = Engine::new();
    let daily = || Schedule::daily("UTC").unwrap();
    assert!(engine.calendar("quota", 3, daily()).is_ok());
    assert!(engine.calendar("quota", 3, daily()).is_ok());
    assert!(engine.calendar("quota", 3, Schedule::monthly("UTC").unwrap()).is_err());
    let nothing = engine.calendar("nothing", 0, daily()).unwrap_err();
    assert_eq!(nothing.to_string(), "a calendar quota must be >= 1");
}
