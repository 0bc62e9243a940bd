//! Behaviour specific to PostgreSQL: sharing, notifications, outages.

use std::time::Duration;

use tidegate_server::{AutoMigrate, Database, DatabaseError, MigrationResult};
use tidegate_testkit::launch::{PostgresServer, wait_until};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{SERVER, set};

/// Timeout for operations that should take a moment.
const TIMEOUT: Duration = Duration::from_secs(10);

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
async fn tables_are_created_only_on_request() {
    let url = SERVER.fresh_database();
    let database = Database::postgres(&url, AutoMigrate::No).unwrap();
    let read = database.read().await.unwrap_err();
    assert!(matches!(read, DatabaseError::NotMigrated), "{read}");
    assert!(read.to_string().contains("tidegate db migrate"), "{read}");
    let written = set(&database, "a", "1").await.unwrap_err();
    assert!(matches!(written, DatabaseError::NotMigrated), "{written}");

    let migrated = database.migrate().await.unwrap();
    assert_eq!(migrated, MigrationResult { from: None, to: 1, backup: None });
    assert_eq!(set(&database, "a", "1").await.unwrap().revision, 1);
    let again = database.migrate().await.unwrap();
    assert_eq!(again, MigrationResult { from: Some(1), to: 1, backup: None });
    let tables = "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables \
                  WHERE schemaname = 'public'";
    assert_eq!(SERVER.sql(&url, tables), "tidegate_change tidegate_meta tidegate_setting");
}

#[tokio::test]
async fn concurrent_starts_do_not_conflict() {
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
async fn schemas_of_one_database_are_independent() {
    let url = SERVER.fresh_database();
    let _ = SERVER.sql(&url, "CREATE SCHEMA one; CREATE SCHEMA other");
    let within = |schema: &str| open(&format!("{url}?options=-c%20search_path%3D{schema}"));
    set(&within("one"), "a", "1").await.unwrap();
    assert_eq!(within("other").read().await.unwrap().revision, 0);
    assert_eq!(within("one").read().await.unwrap().revision, 1);
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "reports the latency of the notification")]
async fn a_change_notifies_other_nodes() {
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
    let received = timeout(TIMEOUT / 2, waiting).await.unwrap().unwrap();
    println!("the notification arrived after {:?}", began.elapsed());
    assert_eq!(received, written);
}

#[tokio::test]
async fn closed_connections_are_reopened() {
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
    assert_eq!(timeout(TIMEOUT, waiting).await.unwrap().unwrap().revision, 2);
    assert_eq!(set(&database, "a", "3").await.unwrap().revision, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_is_used_again_after_an_outage() {
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

    server.restart();
    assert_eq!(here.read().await.unwrap().settings["a"], "1", "nothing was lost");
    let written = set(&here, "a", "3").await.unwrap();
    assert_eq!(timeout(TIMEOUT, waiting).await.unwrap().unwrap(), written);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out() {
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
async fn a_wrong_password_is_reported_but_not_shown() {
    let url = SERVER.url().replace("t%40stkit", "s3cret");
    let read = open(&url).read().await.unwrap_err();
    assert!(matches!(read, DatabaseError::Unavailable(_)), "{read}");
    let shown = format!("{read} {read:?}");
    assert!(shown.contains("password authentication failed"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn a_read_only_server_reports_it() {
    let url = SERVER.fresh_database();
    set(&open(&url), "a", "1").await.unwrap();
    let only = format!("{url}?options=-c%20default_transaction_read_only%3Don");
    let database = Database::postgres(&only, AutoMigrate::No).unwrap();
    assert_eq!(database.read().await.unwrap().settings["a"], "1");
    let written = set(&database, "a", "2").await;
    assert!(matches!(written, Err(DatabaseError::ReadOnly)), "{written:?}");
}

#[tokio::test]
async fn tls_is_used_on_request_and_untrusted_certificates_are_refused() {
    let server = PostgresServer::start_with_tls();
    let url = server.url();
    let trusting = format!("{url}?sslmode=verify-full&sslrootcert={}", server.ca_file().display());
    let database = open(&trusting);
    set(&database, "a", "1").await.unwrap();
    let encrypted = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'tidegate'";
    assert_eq!(server.sql(&url, encrypted), "t");

    let untrusted = open(&format!("{url}?sslmode=require")).read().await.unwrap_err();
    assert!(matches!(untrusted, DatabaseError::Unavailable(_)), "{untrusted}");
    assert!(untrusted.to_string().contains("certificate"), "{untrusted}");
    let plain = open(&format!("{}?sslmode=require", SERVER.url())).read().await.unwrap_err();
    assert!(matches!(plain, DatabaseError::Unavailable(_)), "{plain}");
}
