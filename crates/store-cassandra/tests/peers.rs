//! The tables by which nodes meet, on a real Cassandra.

mod node;

use metric::{Aggregation, Policy};
use store_cassandra::{
    CassandraDriver, Change, ChangeKey, Changed, ListedChange, NodeId, NodeRow,
    schema::{self, Schema},
};

async fn keyspace(test: &str) -> Option<(node::Keyspace, CassandraDriver)> {
    let keyspace = node::Keyspace::make(node::address()?, test).await;
    let options = keyspace.options();
    let schema = Schema::new(&options, &[Policy::default().retention]).with_components(6);
    schema::apply(&options, &schema, &mut |_| ()).await.unwrap();
    let driver = CassandraDriver::connect(options).await.unwrap();
    Some((keyspace, driver))
}

async fn drop_both(keyspace: node::Keyspace) {
    keyspace.run(&format!("DROP KEYSPACE {}_metadata", keyspace.name)).await;
    keyspace.drop().await;
}

fn row(number: u128, heartbeat_ms: i64) -> NodeRow {
    let address = format!("host{number}:8080");
    let version = "0.1".to_owned();
    NodeRow {
        node: NodeId::of_number(number),
        address,
        version,
        replica: 0,
        is_draining: false,
        started_ms: 5,
        heartbeat_ms,
        ahead: 0,
    }
}

#[tokio::test]
async fn nodes_are_there_until_they_withdraw_or_expire() {
    let Some((keyspace, driver)) = keyspace("nodes").await else { return };
    assert_eq!(driver.nodes().await.unwrap(), []);
    for heartbeat in [10, 20] {
        for number in [2, 1] {
            driver.announce(&row(number, heartbeat)).await.unwrap();
        }
    }
    assert_eq!(driver.nodes().await.unwrap(), [row(1, 20), row(2, 20)]);
    driver.withdraw(NodeId::of_number(1)).await.unwrap();
    assert_eq!(driver.nodes().await.unwrap(), [row(2, 20)]);
    let draining = NodeRow { replica: 3, is_draining: true, ..row(2, 30) };
    driver.announce(&draining).await.unwrap();
    assert_eq!(driver.nodes().await.unwrap(), std::slice::from_ref(&draining));
    // A row that no node wrote: an empty value, which any type may have.
    keyspace
        .run(&format!(
            "INSERT INTO {}_metadata.nodes (part, node, address, started) VALUES (0, {}, 'x:1', blob_as_timestamp(0x))",
            keyspace.name,
            NodeId::of_number(7)
        ))
        .await;
    assert_eq!(driver.nodes().await.unwrap(), [draining]);
    let left = keyspace
        .session
        .query_unpaged(
            format!(
                "SELECT TTL(address) FROM {}_metadata.nodes WHERE part = 0 AND node = {}",
                keyspace.name,
                NodeId::of_number(2)
            ),
            (),
        )
        .await
        .unwrap();
    let (left,) = left.into_rows_result().unwrap().single_row::<(i32,)>().unwrap();
    assert!((40..=60).contains(&left), "{left}");
    drop_both(keyspace).await;
}

#[tokio::test]
async fn changes_are_read_back_in_their_order_by_the_moment_they_were_written() {
    let Some((keyspace, driver)) = keyspace("changes").await else { return };
    let policy = Policy { aggregation: Aggregation::AbsMax, x_files_factor: 0.25, ..Policy::default() };
    let change = |written, node, part, changed, names: &[&str]| Change {
        key: ChangeKey { written, node: NodeId::of_number(node), part },
        changed,
        names: names.iter().map(|name| ((*name).to_owned(), 1_700_000_000)).collect(),
    };
    let rows = [
        change(100, 1, 0, Changed::Created(policy), &["a.b"]),
        change(100, 1, 1, Changed::Deleted, &["é;t=v"]),
        change(100, 2, 0, Changed::Created(Policy::default()), &["c"]),
        change(200, 1, 0, Changed::Deleted, &["a.b"]),
    ];
    driver.append_changes(7, &rows[..2]).await.unwrap();
    driver.append_changes(7, &rows[2..3]).await.unwrap();
    // Also again, as after an answer that was lost.
    for _ in 0..2 {
        driver.append_changes(7, &rows[3..]).await.unwrap();
    }
    let listed: Vec<ListedChange> =
        rows.iter().map(|row| ListedChange { key: row.key, is_deletion: row.changed == Changed::Deleted }).collect();
    assert_eq!(driver.list_changes(7, 0).await.unwrap(), listed);
    assert_eq!(driver.list_changes(7, 101).await.unwrap(), listed[3..]);
    assert_eq!(driver.list_changes(8, 0).await.unwrap(), []);
    assert_eq!(driver.changes(7, 100, 200).await.unwrap(), rows);
    assert_eq!(driver.changes(7, 100, 199).await.unwrap(), rows[..3]);
    // What a later version may write is passed over.
    keyspace
        .run(&format!(
            "INSERT INTO {}_metadata.changes (bucket, written, node, part, kind) VALUES (9, 1, {}, 0, 'renamed')",
            keyspace.name,
            NodeId::of_number(3)
        ))
        .await;
    let unknown = driver.changes(9, 0, 5).await.unwrap();
    assert_eq!((unknown.len(), unknown[0].names.len()), (1, 0));
    // So is what none can read.
    keyspace
        .run(&format!(
            "INSERT INTO {}_metadata.changes (bucket, written, node, part, kind, names) VALUES (9, 2, {}, 0, 'deleted', {{'a': blob_as_bigint(0x)}})",
            keyspace.name,
            NodeId::of_number(3)
        ))
        .await;
    assert_eq!((driver.list_changes(9, 0).await.unwrap().len(), driver.changes(9, 0, 5).await.unwrap()), (2, unknown));
    drop_both(keyspace).await;
}

#[tokio::test]
async fn the_largest_statement_of_changes_is_taken() {
    let Some((keyspace, driver)) = keyspace("large_changes").await else { return };
    let name = |nth: usize| (format!("{nth}.{}", "x".repeat(56)), 1_700_000_000);
    let row = |part| Change {
        key: ChangeKey { written: 5, node: NodeId::of_number(1), part },
        changed: Changed::Created(Policy::default()),
        names: (0..store_cassandra::MAX_NAMES_OF_A_CHANGE).map(name).collect(),
    };
    let rows: Vec<Change> = (0..16).map(row).collect();
    driver.append_changes(0, &rows).await.unwrap();
    assert_eq!(driver.changes(0, 0, 10).await.unwrap().len(), 16);
    drop_both(keyspace).await;
}
