//! The tables of docs/architecture.md hold: which crate uses which, and which crate alone knows a library.

use std::{collections::BTreeMap, process::Command};

/// The direct dependencies of each crate of the workspace, those of its tests left out.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", manifest];
    let output = Command::new(cargo).args(arguments).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let of_package = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().expect("a list of dependencies");
        let used = all.iter().filter(|dependency| dependency["kind"] != "dev");
        used.map(|dependency| dependency["name"].as_str().expect("a name").to_owned()).collect()
    };
    packages.iter().map(|package| (package["name"].as_str().expect("a name").to_owned(), of_package(package))).collect()
}

/// The rows of the table whose first heading is `heading`: names in backquotes by row and column.
fn table(heading: &str) -> BTreeMap<String, Vec<Vec<String>>> {
    let page = include_str!("../../../docs/architecture.md");
    let start = format!("| {heading} |");
    let rows =
        page.lines().skip_while(|line| !line.starts_with(&start)).skip(2).take_while(|line| line.starts_with('|'));
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<String>>();
    let rows = rows.map(|line| line.split('|').skip(1).map(quoted).collect::<Vec<_>>());
    rows.map(|cells| (cells[0].concat(), cells)).collect()
}

#[test]
fn a_crate_uses_only_the_crates_that_the_table_allows() {
    let allowed = table("crate");
    let used = dependencies();
    assert!(allowed.len() > 5, "the table was not found");
    assert_eq!(
        allowed.keys().collect::<Vec<_>>(),
        used.keys().collect::<Vec<_>>(),
        "the crates of table and workspace"
    );
    for (name, dependencies) in &used {
        if name == "server" {
            continue;
        }
        for dependency in dependencies.iter().filter(|dependency| used.contains_key(*dependency)) {
            let may_use = &allowed[name][2];
            assert!(may_use.contains(dependency), "{name} uses {dependency}; the table allows {may_use:?}");
        }
    }
}

#[test]
fn a_library_is_known_to_the_crates_that_the_table_names_and_no_others() {
    let known_to = table("library");
    assert!(known_to.len() > 5, "the table was not found");
    let used = dependencies();
    for (library, cells) in &known_to {
        let users = used.iter().filter(|(_, dependencies)| dependencies.contains(library));
        let users: Vec<&String> = users.map(|(name, _)| name).collect();
        let mut named: Vec<&String> = cells[1].iter().collect();
        named.sort_unstable();
        assert_eq!(users, named, "who uses {library}, and who the table says does");
    }
}
