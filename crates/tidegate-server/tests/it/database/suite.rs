//! Behaviour common to both databases.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_server::{Audit, Change, DatabaseError, Note, Stored};
use tokio::task::JoinSet;

use super::{Place, note, set};

#[tokio::test]
async fn what_is_written_is_read_by_others_and_after_a_restart() {
    for place in Place::both() {
        let database = place.open();
        assert_eq!(database.read().await.unwrap(), Stored::default(), "{place:?}");
        let changes = [Change::set("a", "1"), Change::set("b", r#"{"x":"é"}"#)];
        let written = database.write(&changes, &note(), Some(0)).await.unwrap();
        let settings = [("a", "1"), ("b", r#"{"x":"é"}"#)];
        let settings: BTreeMap<String, String> =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(written, Stored { revision: 1, settings });
        assert_eq!(place.open().read().await.unwrap(), written, "{place:?}");

        let unset = [Change::unset("a"), Change::unset("never there")];
        let written = database.write(&unset, &note(), None).await.unwrap();
        assert_eq!((written.revision, written.settings.len()), (2, 1), "{place:?}");
        assert_eq!(place.open().read().await.unwrap(), written, "{place:?}");
        drop(database);
        assert_eq!(place.open().read().await.unwrap(), written, "{place:?}");
    }
}

#[tokio::test]
async fn every_change_is_remembered_with_its_door() {
    for place in Place::both() {
        let database = place.open();
        assert_eq!(database.history(10).await.unwrap(), [], "{place:?}");
        set(&database, "a", "1").await.unwrap();
        let changes = [Change::set("a", "2"), Change::unset("a")];
        let cli = Note { door: "cli", who: None };
        database.write(&changes, &cli, None).await.unwrap();

        let history = database.history(10).await.unwrap();
        let text = |value: &str| Some(value.to_owned());
        let told = |audit: &Audit| {
            assert_eq!(audit.key, "a");
            // Later than 2025, and earlier than 2100.
            assert!((1_735_689_600_000..4_102_444_800_000).contains(&audit.at_ms), "{audit:?}");
            let Audit { revision, door, who, old, new, .. } = audit.clone();
            (revision, door, who, old, new)
        };
        let told: Vec<_> = history.iter().map(told).collect();
        let expected = [
            (2, "cli".to_owned(), None, text("2"), None),
            (2, "cli".to_owned(), None, text("1"), text("2")),
            (1, "admin".to_owned(), text("ada"), None, text("1")),
        ];
        assert_eq!(told, expected, "{place:?}");
        assert_eq!(database.history(1).await.unwrap(), history[..1], "{place:?}");
        assert_eq!(database.history(usize::MAX).await.unwrap(), history, "{place:?}");
    }
}

#[tokio::test]
async fn a_write_that_was_meant_for_another_revision_changes_nothing() {
    for place in Place::both() {
        let database = place.open();
        set(&database, "a", "1").await.unwrap();
        let late = database.write(&[Change::set("a", "2")], &note(), Some(0)).await;
        assert!(matches!(late, Err(DatabaseError::Conflict { now: 1 })), "{place:?} {late:?}");
        let nothing = database.write(&[], &note(), Some(0)).await;
        assert!(matches!(nothing, Err(DatabaseError::Conflict { now: 1 })), "{place:?}");
        assert_eq!(database.write(&[], &note(), Some(1)).await.unwrap().revision, 1);
        assert_eq!(database.read().await.unwrap().settings["a"], "1", "{place:?}");
        assert_eq!(database.history(10).await.unwrap().len(), 1, "{place:?}");
    }
}

#[tokio::test]
async fn of_writers_at_once_each_counts_and_only_one_meets_its_revision() {
    for place in Place::both() {
        let nodes = [place.open(), place.open()];
        let mut writers = JoinSet::new();
        for index in 0..20 {
            let node = nodes[index % 2].clone();
            writers.spawn(async move { set(&node, &format!("key{index}"), "1").await.unwrap() });
        }
        let mut revisions: Vec<u64> =
            writers.join_all().await.iter().map(|stored| stored.revision).collect();
        revisions.sort_unstable();
        assert_eq!(revisions, (1..=20).collect::<Vec<u64>>(), "{place:?}");
        assert_eq!(nodes[0].read().await.unwrap().settings.len(), 20, "{place:?}");

        let mut writers = JoinSet::new();
        for index in 0..10 {
            let node = nodes[index % 2].clone();
            let change = [Change::set("a", index.to_string())];
            writers.spawn(async move { node.write(&change, &note(), Some(20)).await });
        }
        let won = writers.join_all().await.into_iter().filter(Result::is_ok).count();
        assert_eq!((won, nodes[1].read().await.unwrap().revision), (1, 21), "{place:?}");
    }
}

#[tokio::test]
async fn the_database_itself_keeps_the_bounds_of_providers() {
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
    for place in Place::both() {
        let database = place.open();
        set(&database, "before", "1").await.unwrap();
        for (key, values) in bad {
            for value in values {
                let changes = [Change::set("before", "2"), Change::set(key, *value)];
                let refused = database.write(&changes, &note(), None).await.unwrap_err();
                let of_key = matches!(&refused, DatabaseError::Refused { key: k, .. } if k == key);
                assert!(of_key, "{place:?} {key} {value:?}: {refused}");
            }
        }
        let stored = database.read().await.unwrap();
        assert_eq!((stored.revision, stored.settings["before"].as_str()), (1, "1"), "{place:?}");
        assert_eq!(database.history(10).await.unwrap().len(), 1, "{place:?}");
        for (key, value) in good {
            set(&database, key, value).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_too_long_too_much_or_no_text_is_refused_and_not_repeated() {
    for place in Place::both() {
        let database = place.open();
        let long = "s3cret".repeat(10_000);
        for (key, value) in
            [("", "1"), (long.as_str(), "1"), ("a", long.as_str()), ("a\0", "1"), ("a", "s3cret\0")]
        {
            let refused = set(&database, key, value).await.unwrap_err();
            assert!(matches!(refused, DatabaseError::Refused { .. }), "{place:?}: {refused}");
            let text = format!("{refused} {refused:?}");
            assert!(text.len() < 1_000, "{}", text.len());
            assert!(key == long || !text.contains("s3cret"), "{text}");
        }
        let many: Vec<Change> = (0..4_097).map(|key| Change::set(key.to_string(), "1")).collect();
        let refused = database.write(&many, &note(), None).await;
        assert!(matches!(refused, Err(DatabaseError::TooMany { most: 4_096, .. })), "{refused:?}");
        let stored = database.write(&many[1..], &note(), None).await.unwrap();
        assert_eq!((stored.revision, stored.settings.len()), (1, 4_096), "{place:?}");
        let none: Vec<Change> = many[1..].iter().map(|change| Change::unset(&change.key)).collect();
        let stored = database.write(&none, &note(), None).await.unwrap();
        assert_eq!((stored.revision, stored.settings.len()), (2, 0), "{place:?}");
        let longest = [Change::set("ü".repeat(256), "é".repeat(16_384))];
        database.write(&longest, &note(), None).await.unwrap();
    }
}

#[tokio::test]
async fn whoever_waits_hears_of_what_others_write() {
    for place in Place::both() {
        let (here, there) = (place.open(), place.open());
        set(&here, "a", "1").await.unwrap();
        let behind = there.changed(0).await;
        assert_eq!((behind.revision, behind.settings["a"].as_str()), (1, "1"), "{place:?}");

        let write = async {
            tokio::task::yield_now().await;
            set(&here, "a", "2").await.unwrap()
        };
        let both = async { tokio::join!(there.changed(1), there.changed(1), write) };
        let (one, other, written) =
            tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
        assert_eq!((&one, &other), (&written, &written), "{place:?}");
    }
}

#[tokio::test]
async fn a_write_that_nobody_waits_for_any_more_is_done_whole_or_not_at_all() {
    for place in Place::both() {
        let database = place.open();
        set(&database, "a", "0").await.unwrap();
        for step in 1..=30_u32 {
            let value = step.to_string();
            let changes = ["a", "b"].map(|key| Change::set(key, value.clone()));
            let patience = Duration::from_micros(150) * step;
            let _ = tokio::time::timeout(patience, database.write(&changes, &note(), None)).await;
        }
        let last = set(&database, "c", "1").await.unwrap();
        assert_eq!(last.settings.get("b").unwrap_or(&last.settings["a"]), &last.settings["a"]);
        let mut revisions = BTreeMap::<u64, usize>::new();
        for audit in database.history(1_000).await.unwrap() {
            *revisions.entry(audit.revision).or_default() += 1;
        }
        assert_eq!((revisions.remove(&1), revisions.remove(&last.revision)), (Some(1), Some(1)));
        assert!(revisions.keys().copied().eq(2..last.revision), "{place:?} {revisions:?}");
        assert!(revisions.values().all(|changes| *changes == 2), "{place:?} {revisions:?}");
    }
}
