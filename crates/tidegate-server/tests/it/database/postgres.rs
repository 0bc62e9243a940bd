//! Behaviour specific to PostgreSQL: sharing, notifications, outages.

use std::time::Duration;

use tidegate_server::{AutoMigrate, Database, DatabaseError, Migrated};
use tidegate_testkit::launch::{PostgresServer, wait_until};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{SERVER, set};

/// Timeout for operations that should take a moment.
const PATIENCE: Duration = Duration::from_secs(10);

fn open(url: &str) -> Database {
    Database::postgres(url, AutoMigrate::Yes).unwrap()
}

/// Waits until `count` connections listen in a database.
fn wait_for_listeners(server: &PostgresServer, url: &str, count: usize) {
    let listeners = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND query LIKE 'LISTEN %'";
    let count = count.to_string();
    wait_until("listeners", || (server.sql(url, listeners) == count).then_some(()));
}

#[tokio::test]
async fn tables_are_made_when_somebody_says_so() {
    let url = SERVER.fresh_database();
    let database = Database::postgres(&url, AutoMigrate::No).unwrap();
    let read = database.read().await.unwrap_err();
    assert!(matches!(read, DatabaseError::NotMigrated), "{read}");
    assert!(read.to_string().contains("tidegate db migrate"), "{read}");
    let written = set(&database, "a", "1").await.unwrap_err();
    assert!(matches!(written, DatabaseError::NotMigrated), "{written}");

    let migrated = database.migrate().await.unwrap();
    assert_eq!(migrated, Migrated { from: None, to: 1, backup: None });
    assert_eq!(set(&database, "a", "1").await.unwrap().revision, 1);
    let again = database.migrate().await.unwrap();
    assert_eq!(again, Migrated { from: Some(1), to: 1, backup: None });
    let tables = "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables \
                  WHERE schemaname = 'public'";
    assert_eq!(SERVER.sql(&url, tables), "tidegate_change tidegate_meta tidegate_setting");
}

#[tokio::test]
async fn nodes_that_start_at_once_do_not_collide() {
    let url = SERVER.fresh_database();
    let mut nodes = JoinSet::new();
    for _ in 0..8 {
        let node = open(&url);
        nodes.spawn(async move { node.read().await.map(|stored| stored.revision) });
    }
    let revisions: Result<Vec<u64>, _> = nodes.join_all().await.into_iter().collect();
    assert_eq!(revisions.unwrap(), [0; 8]);
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let url = SERVER.fresh_database();
    let database = open(&url);
    set(&database, "a", "1").await.unwrap();
    let _ = SERVER.sql(&url, "UPDATE tidegate_meta SET format = 9");
    for error in [
        database.read().await.unwrap_err(),
        set(&database, "a", "2").await.unwrap_err(),
        database.history(1).await.unwrap_err(),
        database.migrate().await.unwrap_err(),
        open(&url).read().await.unwrap_err(),
    ] {
        assert!(matches!(error, DatabaseError::NewFormat { found: 9, known: 1 }), "{error}");
    }
    let _ = SERVER.sql(&url, "DELETE FROM tidegate_meta");
    let read = database.read().await;
    assert!(matches!(read, Err(DatabaseError::Damaged(_))), "{read:?}");
}

#[tokio::test]
async fn two_tenants_of_one_database_have_a_schema_each() {
    let url = SERVER.fresh_database();
    let _ = SERVER.sql(&url, "CREATE SCHEMA one; CREATE SCHEMA other");
    let within = |schema: &str| open(&format!("{url}?options=-c%20search_path%3D{schema}"));
    set(&within("one"), "a", "1").await.unwrap();
    assert_eq!(within("other").read().await.unwrap().revision, 0);
    assert_eq!(within("one").read().await.unwrap().revision, 1);
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "how long it took is told to a person")]
async fn a_change_reaches_another_node_by_a_notice() {
    let url = SERVER.fresh_database();
    let (here, there) = (open(&url), open(&url));
    assert_eq!(set(&here, "a", "1").await.unwrap().revision, 1);
    let waiting = tokio::spawn(async move { there.changed(1).await });
    // Blocking here would keep the other node from listening.
    let watched = url.clone();
    let listening = move || wait_for_listeners(&SERVER, &watched, 1);
    tokio::task::spawn_blocking(listening).await.unwrap();
    let written = set(&here, "a", "2").await.unwrap();
    let began = Instant::now();
    // Half of the node's own polling interval.
    let heard = timeout(PATIENCE / 2, waiting).await.unwrap().unwrap();
    println!("the change was heard of after {:?}", began.elapsed());
    assert_eq!(heard, written);
}

#[tokio::test]
async fn connections_that_the_server_ended_are_made_again() {
    let url = SERVER.fresh_database();
    let (database, other) = (open(&url), open(&url));
    set(&database, "a", "1").await.unwrap();
    let waiting = tokio::spawn({
        let database = database.clone();
        async move { database.changed(1).await }
    });
    let watched = url.clone();
    tokio::task::spawn_blocking(move || {
        wait_for_listeners(&SERVER, &watched, 1);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND application_name = 'tidegate'";
        let _ = SERVER.sql(&watched, end);
    })
    .await
    .unwrap();
    assert_eq!(set(&other, "a", "2").await.unwrap().revision, 2);
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap().revision, 2);
    assert_eq!(set(&database, "a", "3").await.unwrap().revision, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_was_away_is_found_again() {
    let server = PostgresServer::start();
    let url = server.fresh_database();
    let (here, there) = (open(&url), open(&url));
    set(&here, "a", "1").await.unwrap();
    let waiting = tokio::spawn(async move { there.changed(1).await });
    wait_for_listeners(&server, &url, 1);

    server.kill();
    let began = Instant::now();
    let read = here.read().await.unwrap_err();
    assert!(matches!(read, DatabaseError::Unavailable(_)), "{read}");
    let written = set(&here, "a", "2").await.unwrap_err();
    assert!(matches!(written, DatabaseError::Unavailable(_)), "{written}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(!waiting.is_finished());

    server.start_again();
    assert_eq!(here.read().await.unwrap().settings["a"], "1", "nothing was lost");
    let written = set(&here, "a", "3").await.unwrap();
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap(), written);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let database = open(&format!("postgres://user:s3cret@127.0.0.1:{port}/name"));
    let began = Instant::now();
    let read = database.read().await.unwrap_err();
    assert!(matches!(read, DatabaseError::Unavailable(_)), "{read}");
    assert_eq!(began.elapsed().as_secs(), 5);
    let shown = format!("{read} {read:?} {database} {database:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_shown() {
    let url = SERVER.url().replace("t%40stkit", "s3cret");
    let read = open(&url).read().await.unwrap_err();
    assert!(matches!(read, DatabaseError::Unavailable(_)), "{read}");
    let shown = format!("{read} {read:?}");
    assert!(shown.contains("password authentication failed"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn a_server_that_may_only_be_read_says_so() {
    let url = SERVER.fresh_database();
    set(&open(&url), "a", "1").await.unwrap();
    let only = format!("{url}?options=-c%20default_transaction_read_only%3Don");
    let database = Database::postgres(&only, AutoMigrate::No).unwrap();
    assert_eq!(database.read().await.unwrap().settings["a"], "1");
    let written = set(&database, "a", "2").await;
    assert!(matches!(written, Err(DatabaseError::ReadOnly)), "{written:?}");
}

#[tokio::test]
async fn tls_is_used_when_it_is_asked_for_and_strangers_are_not_trusted() {
    let server = PostgresServer::start_with_tls();
    let url = server.url();
    let trusting = format!("{url}?sslmode=verify-full&sslrootcert={}", server.ca_file().display());
    let database = open(&trusting);
    set(&database, "a", "1").await.unwrap();
    let encrypted = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'tidegate'";
    assert_eq!(server.sql(&url, encrypted), "t");

    let stranger = open(&format!("{url}?sslmode=require")).read().await.unwrap_err();
    assert!(matches!(stranger, DatabaseError::Unavailable(_)), "{stranger}");
    assert!(stranger.to_string().contains("certificate"), "{stranger}");
    let plain = open(&format!("{}?sslmode=require", SERVER.url())).read().await.unwrap_err();
    assert!(matches!(plain, DatabaseError::Unavailable(_)), "{plain}");
}
