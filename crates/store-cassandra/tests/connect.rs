//! Error messages of a failed connection to Cassandra.

mod node;

use std::{path::Path, time::Duration};

use expect_test::{Expect, expect};
use store_cassandra::{CassandraDriver, ClusterOptions, Credentials, TlsOptions};
use tokio::net::TcpListener;

/// Checks the error of connecting to a cluster, its address written `HERE`.
async fn check(cluster: ClusterOptions, is_transient: bool, expected: Expect) {
    let address = cluster.contact_points[0].clone();
    let error = CassandraDriver::connect(node::options(cluster, "nowhere")).await.err().expect("it must fail");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    expected.assert_eq(&error.to_string().replace(&address, "HERE"));
    assert_eq!(error.is_transient(), is_transient, "{error}");
}

fn quick(address: &str) -> ClusterOptions {
    ClusterOptions { connect_timeout: Duration::from_millis(300), ..node::cluster(address) }
}

fn with_tls(mut cluster: ClusterOptions, ca: &Path) -> ClusterOptions {
    cluster.tls = Some(TlsOptions { ca: ca.to_owned(), identity: None, verify_host: true });
    cluster
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut cluster = quick(&address);
    cluster.credentials = Some(Credentials { user: "a".into(), password: "secret".into() });
    check(
        cluster,
        true,
        expect!["Cassandra at HERE: nothing listens there; check that Cassandra runs and that the port is the one for CQL (9042)"],
    )
    .await;
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    check(quick(&address), true, expect!["Cassandra at HERE: no answer in time; check that Cassandra runs, the address and firewalls; perhaps this port requires TLS (tls_ca)"]).await;
    drop(listener);
}

#[tokio::test]
async fn an_unknown_host_name_is_reported() {
    check(
        quick("nowhere.invalid"),
        true,
        expect![
            "Cassandra at HERE: cannot resolve the name of any contact point; give an address, or repair the name service"
        ],
    )
    .await;
}

#[tokio::test]
async fn a_missing_or_invalid_certificate_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let options = node::options(with_tls(quick("127.0.0.1:1"), &ca), "nowhere");
    let error = CassandraDriver::connect(options.clone()).await.err().unwrap();
    assert!(error.to_string().contains(&*ca.to_string_lossy()), "{error}");
    assert!(!error.is_transient());
    std::fs::write(&ca, "no certificate").unwrap();
    let error = CassandraDriver::connect(options).await.err().unwrap();
    assert!(error.to_string().starts_with("there is no certificate in "), "{error}");
}

#[tokio::test]
async fn a_port_without_tls_is_reported() {
    let Some(address) = node::address() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, CA).unwrap();
    check(with_tls(node::cluster(&address), &ca), false, expect!["Cassandra at HERE: this port does not use TLS (received corrupt message of type InvalidContentType); leave tls_ca out, or use the node's port for TLS"]).await;
}

/// An authority that signed no certificate.
const CA: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBdzCCAR6gAwIBAgITAr6VDnUK9ZNNWGwIuQrITz9G/jAKBggqhkjOPQQDAjAR\n\
    MQ8wDQYDVQQDDAZub2JvZHkwIBcNMjYxMTIxMDc1NDUxWhgPMjEyNjEwMjgwNzU0\n\
    NTFaMBExDzANBgNVBAMMBm5vYm9keTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA\n\
    BARhafQFvJeDdcw1+lok9mNrPIOBfnWNp0KX4ANcoUDfNBsOym4XluRuCWXXr5XG\n\
    3oUAuF13y1eExYyvky5plnejUzBRMB0GA1UdDgQWBBTimOGtxnIPShs9SaOyDW5O\n\
    ND4HWjAfBgNVHSMEGDAWgBTimOGtxnIPShs9SaOyDW5OND4HWjAPBgNVHRMBAf8E\n\
    BTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIBydUvQd4XAyvTlkvLmeoDekJFqmy1JA\n\
    S/Khob7W0HtxAiBx37TTuljJqLCm6l+czo9uncPzTCYujPwpysmyqlZeRw==\n\
    -----END CERTIFICATE-----\n";
