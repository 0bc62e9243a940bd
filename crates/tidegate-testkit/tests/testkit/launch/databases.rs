//! PostgreSQL: starting, queries, killing, restarting; and work without root privileges.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use tidegate_testkit::launch::{PostgresServer, unprivileged};

#[test]
fn a_killed_database_refuses_and_comes_back_with_its_data() {
    let server = PostgresServer::start();
    let url = server.fresh_database();
    assert_ne!(url, server.fresh_database());
    let _ = server.sql(&url, "CREATE TABLE t AS SELECT 'kept' AS a, 7 AS b");
    server.kill();
    server.kill();
    assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err(), "the port refuses");

    server.restart();
    assert_eq!(server.sql(&url, "SELECT a, b FROM t"), "kept|7");
}

#[test]
fn a_database_serves_tls_to_clients_that_trust_its_authority() {
    let server = PostgresServer::start_with_tls();
    let ca = server.ca_file();
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), ca.display());
    let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(server.sql(&url, encrypted), "t");
    assert_eq!(server.sql(&format!("{}?sslmode=disable", server.url()), encrypted), "f");
}

#[test]
fn unprivileged_work_cannot_write_read_only_files() {
    let folder = std::env::temp_dir().join(format!("tidegate-unprivileged-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let file = folder.join("file");
    let written = unprivileged(|| fs::write(&file, "text"));
    assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    fs::remove_dir(&folder).unwrap();
}
