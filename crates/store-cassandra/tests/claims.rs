//! Writer ids that change hands while a node is away, on a real Cassandra.

mod node;

use metric::Policy;
use store::StoreError;
use store_cassandra::{
    CassandraDriver, Location,
    schema::{self, Schema},
};

fn place(host: &str) -> Location {
    Location { host: host.to_owned(), data_directory: "/data".to_owned() }
}

#[tokio::test]
async fn a_node_that_was_away_sees_that_a_copy_of_its_data_directory_took_its_id() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "claims").await;
    let options = keyspace.options();
    let schema = Schema::new(&options, &[Policy::default().retention]).with_components(6);
    schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
    let mut driver = CassandraDriver::connect(options.clone()).await.unwrap();

    let away = driver.claim(None, &place("one")).await.unwrap();
    away.refresh().await.unwrap();
    // It is silent for two minutes, and an operator starts its node from a copy.
    let writers = format!("{}_metadata.writers", keyspace.name);
    let writer = away.identity().writer;
    keyspace.run(&format!("DELETE alive FROM {writers} WHERE writer = {writer}")).await;
    let copy = driver.claim(Some(away.identity()), &place("two")).await.unwrap();
    assert_eq!(copy.identity(), away.identity());

    assert!(!away.is_lost());
    let error = away.refresh().await.unwrap_err();
    assert!(matches!(error, StoreError::Rejected(_)), "{error}");
    assert!(error.to_string().contains("a node on host 'two' in /data took the writer id"), "{error}");
    assert!(away.is_lost());
    copy.refresh().await.unwrap();

    // It stops, and does not let go of what is not its own.
    away.release().await.unwrap();
    let error = driver.claim(Some(copy.identity()), &place("three")).await.unwrap_err().to_string();
    assert!(error.contains("on host 'two' in /data"), "{error}");

    // The row is deleted by hand: the node that lives keeps its id.
    keyspace.run(&format!("DELETE FROM {writers} WHERE writer = {writer}")).await;
    copy.refresh().await.unwrap();
    assert!(!copy.is_lost());
    keyspace.run(&format!("DROP KEYSPACE {}_metadata", keyspace.name)).await;
    keyspace.drop().await;
}

#[tokio::test]
async fn a_node_sees_a_copy_of_itself_at_the_same_path_on_a_host_of_the_same_name() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "clones").await;
    let options = keyspace.options();
    let schema = Schema::new(&options, &[Policy::default().retention]).with_components(6);
    schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
    let mut driver = CassandraDriver::connect(options.clone()).await.unwrap();

    let killed = driver.claim(None, &place("one")).await.unwrap();
    let identity = killed.identity();
    drop(killed);
    // After a kill it starts again at once.
    let original = driver.claim(Some(identity), &place("one")).await.unwrap();
    original.refresh().await.unwrap();

    let copy = driver.claim(Some(identity), &place("one")).await.unwrap();
    let error = original.refresh().await.unwrap_err().to_string();
    assert!(
        error.contains("a copy of this node, with the same path /data on a host of the same name 'one'"),
        "{error}"
    );
    assert!(original.is_lost());
    copy.refresh().await.unwrap();
    // The original stops, and the copy stays alive.
    original.release().await.unwrap();
    copy.refresh().await.unwrap();
    let error = driver.claim(Some(identity), &place("two")).await.unwrap_err().to_string();
    assert!(error.contains("which was alive less than 120 s ago"), "{error}");
    assert!(!copy.is_lost());
    keyspace.run(&format!("DROP KEYSPACE {}_metadata", keyspace.name)).await;
    keyspace.drop().await;
}

#[tokio::test]
async fn of_two_nodes_that_claim_an_id_at_once_one_gets_it() {
    let Some(address) = node::address() else { return };
    let keyspace = node::Keyspace::make(address, "races").await;
    let options = keyspace.options();
    let schema = Schema::new(&options, &[Policy::default().retention]).with_components(6);
    schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
    let mut one = CassandraDriver::connect(options.clone()).await.unwrap();
    let mut two = CassandraDriver::connect(options.clone()).await.unwrap();

    let gone = one.claim(None, &place("gone")).await.unwrap();
    let identity = gone.identity();
    drop(gone);
    let writers = format!("{}_metadata.writers", keyspace.name);
    for round in 0..10 {
        keyspace.run(&format!("DELETE alive FROM {writers} WHERE writer = {}", identity.writer)).await;
        let (here, there) = (place("one"), place("two"));
        let got = tokio::join!(one.claim(Some(identity), &here), two.claim(Some(identity), &there));
        let (winner, loser, host) = match got {
            (Ok(winner), Err(loser)) => (winner, loser, "one"),
            (Err(loser), Ok(winner)) => (winner, loser, "two"),
            (one, two) => panic!("round {round}: {:?} {:?}", one.is_ok(), two.is_ok()),
        };
        assert!(loser.to_string().contains(&format!("on host '{host}' in /data")), "round {round}: {loser}");
        winner.refresh().await.unwrap();
    }
    // A row written by hand names a node that does not exist.
    keyspace
        .run(&format!("DELETE alive, host, data_directory FROM {writers} WHERE writer = {}", identity.writer))
        .await;
    one.claim(Some(identity), &place("four")).await.unwrap();
    keyspace.run(&format!("DROP KEYSPACE {}_metadata", keyspace.name)).await;
    keyspace.drop().await;
}
