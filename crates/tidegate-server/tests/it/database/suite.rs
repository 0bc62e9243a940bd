//! Behaviour common to both databases.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_server::{AuditEntry, ChangeOrigin, DatabaseError, SettingUpdate, StoredSettings};
use tokio::task::JoinSet;

use super::{Location, note, set};

#[tokio::test]
async fn writes_are_visible_to_others_and_after_a_restart() {
    for location in Location::both() {
        let database = location.open();
        assert_eq!(database.read().await.unwrap(), StoredSettings::default(), "{location:?}");
        let changes = [SettingUpdate::set("a", "1"), SettingUpdate::set("b", r#"{"x":"é"}"#)];
        let written = database.write(&changes, &note(), Some(0)).await.unwrap();
        let settings = [("a", "1"), ("b", r#"{"x":"é"}"#)];
        let settings: BTreeMap<String, String> =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(written, StoredSettings { revision: 1, settings });
        assert_eq!(location.open().read().await.unwrap(), written, "{location:?}");

        let unset = [SettingUpdate::unset("a"), SettingUpdate::unset("never there")];
        let written = database.write(&unset, &note(), None).await.unwrap();
        assert_eq!((written.revision, written.settings.len()), (2, 1), "{location:?}");
        assert_eq!(location.open().read().await.unwrap(), written, "{location:?}");
        drop(database);
        assert_eq!(location.open().read().await.unwrap(), written, "{location:?}");
    }
}

#[tokio::test]
async fn every_change_is_recorded_with_its_origin() {
    for location in Location::both() {
        let database = location.open();
        assert_eq!(database.history(10).await.unwrap(), [], "{location:?}");
        set(&database, "a", "1").await.unwrap();
        let changes = [SettingUpdate::set("a", "2"), SettingUpdate::unset("a")];
        let cli = ChangeOrigin { door: "cli", who: None };
        database.write(&changes, &cli, None).await.unwrap();

        let history = database.history(10).await.unwrap();
        let text = |value: &str| Some(value.to_owned());
        let entry = |audit: &AuditEntry| {
            assert_eq!(audit.key, "a");
            // Later than 2025, and earlier than 2100.
            assert!((1_735_689_600_000..4_102_444_800_000).contains(&audit.at_ms), "{audit:?}");
            let AuditEntry { revision, door, who, old, new, .. } = audit.clone();
            (revision, door, who, old, new)
        };
        let entries: Vec<_> = history.iter().map(entry).collect();
        let expected = [
            (2, "cli".to_owned(), None, text("2"), None),
            (2, "cli".to_owned(), None, text("1"), text("2")),
            (1, "admin".to_owned(), text("ada"), None, text("1")),
        ];
        assert_eq!(entries, expected, "{location:?}");
        assert_eq!(database.history(1).await.unwrap(), history[..1], "{location:?}");
        assert_eq!(database.history(usize::MAX).await.unwrap(), history, "{location:?}");
    }
}

#[tokio::test]
async fn a_write_for_an_outdated_revision_changes_nothing() {
    for location in Location::both() {
        let database = location.open();
        set(&database, "a", "1").await.unwrap();
        let late = database.write(&[SettingUpdate::set("a", "2")], &note(), Some(0)).await;
        assert!(matches!(late, Err(DatabaseError::Conflict { now: 1 })), "{location:?} {late:?}");
        let nothing = database.write(&[], &note(), Some(0)).await;
        assert!(matches!(nothing, Err(DatabaseError::Conflict { now: 1 })), "{location:?}");
        assert_eq!(database.write(&[], &note(), Some(1)).await.unwrap().revision, 1);
        assert_eq!(database.read().await.unwrap().settings["a"], "1", "{location:?}");
        assert_eq!(database.history(10).await.unwrap().len(), 1, "{location:?}");
    }
}

#[tokio::test]
async fn concurrent_writes_all_count_and_one_per_expected_revision_succeeds() {
    for location in Location::both() {
        let nodes = [location.open(), location.open()];
        let mut writers = JoinSet::new();
        for index in 0..20 {
            let node = nodes[index % 2].clone();
            writers.spawn(async move { set(&node, &format!("key{index}"), "1").await.unwrap() });
        }
        let mut revisions: Vec<u64> =
            writers.join_all().await.iter().map(|stored| stored.revision).collect();
        revisions.sort_unstable();
        assert_eq!(revisions, (1..=20).collect::<Vec<u64>>(), "{location:?}");
        assert_eq!(nodes[0].read().await.unwrap().settings.len(), 20, "{location:?}");

        let mut writers = JoinSet::new();
        for index in 0..10 {
            let node = nodes[index % 2].clone();
            let change = [SettingUpdate::set("a", index.to_string())];
            writers.spawn(async move { node.write(&change, &note(), Some(20)).await });
        }
        let won = writers.join_all().await.into_iter().filter(Result::is_ok).count();
        assert_eq!((won, nodes[1].read().await.unwrap().revision), (1, 21), "{location:?}");
    }
}

#[tokio::test]
async fn the_database_enforces_the_ranges_of_provider_settings() {
    let concurrent = ["0", "101", "-1", "1.5", "\"8\"", "null", "08", "1000", "8\n", ""];
    let retries = ["-1", "21", "2e0", "true", "00", "100", "20 "];
    let bad = [
        ("providers.openai.max_concurrent_requests", concurrent.as_slice()),
        ("providers.openai.endpoints.embeddings.max_concurrent_requests", concurrent.as_slice()),
        ("providers.my-own.max_retries", retries.as_slice()),
    ];
    let good = [
        ("providers.openai.max_concurrent_requests", "1"),
        ("providers.openai.endpoints.embeddings.max_concurrent_requests", "100"),
        ("providers.my-own.max_retries", "0"),
        ("providers.my-own.max_retries", "20"),
        ("limits.max_retries", "21"),
    ];
    for location in Location::both() {
        let database = location.open();
        set(&database, "before", "1").await.unwrap();
        for (key, values) in bad {
            for value in values {
                let changes = [SettingUpdate::set("before", "2"), SettingUpdate::set(key, *value)];
                let refused = database.write(&changes, &note(), None).await.unwrap_err();
                let of_key = matches!(&refused, DatabaseError::Refused { key: k, .. } if k == key);
                assert!(of_key, "{location:?} {key} {value:?}: {refused}");
            }
        }
        let stored = database.read().await.unwrap();
        assert_eq!((stored.revision, stored.settings["before"].as_str()), (1, "1"), "{location:?}");
        assert_eq!(database.history(10).await.unwrap().len(), 1, "{location:?}");
        for (key, value) in good {
            set(&database, key, value).await.unwrap();
        }
    }
}

#[tokio::test]
async fn oversized_and_invalid_settings_are_refused_and_not_repeated() {
    for location in Location::both() {
        let database = location.open();
        let long = "s3cret".repeat(10_000);
        for (key, value) in
            [("", "1"), (long.as_str(), "1"), ("a", long.as_str()), ("a\0", "1"), ("a", "s3cret\0")]
        {
            let refused = set(&database, key, value).await.unwrap_err();
            assert!(matches!(refused, DatabaseError::Refused { .. }), "{location:?}: {refused}");
            let text = format!("{refused} {refused:?}");
            assert!(text.len() < 1_000, "{}", text.len());
            assert!(key == long || !text.contains("s3cret"), "{text}");
        }
        let many: Vec<SettingUpdate> =
            (0..4_097).map(|key| SettingUpdate::set(key.to_string(), "1")).collect();
        let refused = database.write(&many, &note(), None).await;
        assert!(matches!(refused, Err(DatabaseError::TooMany { most: 4_096, .. })), "{refused:?}");
        let stored = database.write(&many[1..], &note(), None).await.unwrap();
        assert_eq!((stored.revision, stored.settings.len()), (1, 4_096), "{location:?}");
        let none: Vec<SettingUpdate> =
            many[1..].iter().map(|change| SettingUpdate::unset(&change.key)).collect();
        let stored = database.write(&none, &note(), None).await.unwrap();
        assert_eq!((stored.revision, stored.settings.len()), (2, 0), "{location:?}");
        let longest = [SettingUpdate::set("ü".repeat(256), "é".repeat(16_384))];
        database.write(&longest, &note(), None).await.unwrap();
    }
}

#[tokio::test]
async fn changed_returns_the_writes_of_others() {
    for location in Location::both() {
        let (here, there) = (location.open(), location.open());
        set(&here, "a", "1").await.unwrap();
        let behind = there.changed(0).await;
        assert_eq!((behind.revision, behind.settings["a"].as_str()), (1, "1"), "{location:?}");

        let write = async {
            tokio::task::yield_now().await;
            set(&here, "a", "2").await.unwrap()
        };
        let both = async { tokio::join!(there.changed(1), there.changed(1), write) };
        let (one, other, written) =
            tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
        assert_eq!((&one, &other), (&written, &written), "{location:?}");
    }
}

#[tokio::test]
async fn a_cancelled_write_is_atomic() {
    for location in Location::both() {
        let database = location.open();
        set(&database, "a", "0").await.unwrap();
        for round in 1..=30_u32 {
            let value = round.to_string();
            let changes = ["a", "b"].map(|key| SettingUpdate::set(key, value.clone()));
            let timeout = Duration::from_micros(150) * round;
            let _ = tokio::time::timeout(timeout, database.write(&changes, &note(), None)).await;
        }
        let last = set(&database, "c", "1").await.unwrap();
        assert_eq!(last.settings.get("b").unwrap_or(&last.settings["a"]), &last.settings["a"]);
        let mut revisions = BTreeMap::<u64, usize>::new();
        for audit in database.history(1_000).await.unwrap() {
            *revisions.entry(audit.revision).or_default() += 1;
        }
        assert_eq!((revisions.remove(&1), revisions.remove(&last.revision)), (Some(1), Some(1)));
        assert!(revisions.keys().copied().eq(2..last.revision), "{location:?} {revisions:?}");
        assert!(revisions.values().all(|changes| *changes == 2), "{location:?} {revisions:?}");
    }
}
