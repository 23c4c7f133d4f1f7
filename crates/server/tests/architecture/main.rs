//! docs/architecture.md is true: which crate uses which, which crates know a library, and the files of the walks. Files of
//! a crate use each other in one direction. Clock, file system and random source come from `host` alone.

mod sources;

use std::{collections::BTreeMap, process::Command};

use sources::Crate;

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
    let page = include_str!("../../../../docs/architecture.md");
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

/// Effects that `host` alone may have, as they are written in code.
const EFFECTS: [&str; 7] =
    ["SystemTime::now", "Instant::now", "std::fs", "fs::", "Uuid::new_v4", "getrandom::", "rand::"];

/// Crates that do not take the machine from `host`: it itself, and the measurer of servers.
const WITH_EFFECTS: [&str; 2] = ["host", "bench"];

#[test]
fn clock_files_and_random_numbers_come_from_host_alone() {
    let mut found = Vec::new();
    for name in dependencies().keys().filter(|name| !WITH_EFFECTS.contains(&name.as_str())) {
        for file in Crate::read(name).files.values() {
            for (number, line) in file.code.lines().enumerate() {
                let effect = EFFECTS.iter().find(|effect| has(line, effect));
                found.extend(effect.map(|effect| format!("{name}/src/{}:{}: {effect}", file.name, number + 1)));
            }
        }
    }
    assert!(found.is_empty(), "use the clock, disk or random source of `host`:\n{found:#?}");
}

/// The line has the path, and not as the end of a longer word. tokio's clock and Unix file types do not count.
fn has(line: &str, path: &str) -> bool {
    let line = line.replace("tokio::time::Instant::now", "").replace("os::unix::fs::", "");
    let starts = line.match_indices(path).map(|(at, _)| at);
    let before = |at: usize| line[..at].chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    starts.into_iter().any(|at| !before(at))
}

#[test]
fn files_of_a_crate_use_each_other_in_one_direction() {
    let mut circles = String::new();
    for name in dependencies().keys() {
        let sources = Crate::read(name);
        let uses = sources.uses();
        for circle in sources.circles() {
            for file in &circle {
                let used: Vec<&str> = uses[file].intersection(&circle).copied().collect();
                circles += &format!("{name}/src/{file} uses {}\n", used.join(" "));
            }
            circles.push('\n');
        }
    }
    assert!(circles.is_empty(), "break these circles:\n{circles}");
}

#[test]
fn the_walks_name_files_that_exist() {
    let page = include_str!("../../../../docs/architecture.md");
    let (_, walks) = page.split_once("## Where to read").expect("the page has the walks");
    let (walks, _) = walks.split_once("\n## ").expect("a section follows");
    let mut home = "";
    let mut checked = 0;
    for line in walks.lines() {
        if let Some((_, rest)) = line.split_once(", in `") {
            home = rest.split('`').next().unwrap_or_default();
        }
        let mut of_crate = home;
        for word in line.split_whitespace() {
            let word = word.trim_end_matches([',', ';']);
            if let Some(name) = word.strip_suffix(':') {
                of_crate = name;
            } else if word.ends_with(".rs") || word.ends_with('/') {
                let path = sources::crates_folder().join(of_crate).join("src").join(word);
                assert!(path.exists(), "docs/architecture.md names {word} of {of_crate}, which does not exist");
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "the walks were not found");
}
