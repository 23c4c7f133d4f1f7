//! The statements that answer a glob from the tables of names, as BigGraphite plans them. Pure.
//!
//! 1. The alternatives of each component are multiplied out into *shapes*: lists of what each component is or begins
//!    with, of names of one depth, or from a depth on. `**` before the last component is a shape for each depth.
//! 2. Where that would be more statements than allowed, the alternatives of one component after the other become what they
//!    all begin with; and if that is not enough, everything behind the first `**` is left to the filter.
//! 3. A shape is a statement: by name, by parent, or by those components that are known and the mark of the end.
//!
//! Statements may find more names than the glob matches; the caller filters.

use globs::Part;

use crate::schema::{FoundIndexes, LAST_COMPONENT, quoted};

/// What the glob fixes of a component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Exact(String),
    Prefix(String),
}

/// Names of one depth, or of at least one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    steps: Vec<Step>,
    /// Whether a name may have more components after the steps.
    is_open: bool,
}

/// A statement to be run on both tables of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    /// What follows `SELECT name FROM table`, but the limit; markers for the values.
    pub(super) condition: String,
    /// Whether the statement needs ALLOW FILTERING.
    pub(super) filters: bool,
    pub(super) values: Vec<String>,
}

/// The statements that find at least all matches of a glob. `columns` is how many columns the tables have for components, `most` how
/// many statements there may be.
pub(super) fn plan(parts: &[Vec<Part>], columns: usize, indexes: FoundIndexes, most: usize) -> Vec<Query> {
    // One column takes the mark of the end.
    let deepest = columns.saturating_sub(1);
    let mut queries: Vec<Query> = Vec::new();
    for shape in shapes(parts, deepest, most.max(1)) {
        let query = query(&shape, indexes);
        if query.condition.is_empty() {
            // Everything: nothing else needs to be asked.
            return vec![query];
        }
        queries.push(query);
    }
    queries
}

fn shapes(parts: &[Vec<Part>], deepest: usize, most: usize) -> Vec<Shape> {
    let mut parts = parts.to_vec();
    if let Some(last) = parts.last_mut() {
        // A name does not end in a dot.
        last.retain(|part| *part != Part::Nothing);
    }
    if parts.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    let mut narrowed = 0;
    loop {
        if let Some(shapes) = expand(&parts, deepest, most) {
            return shapes;
        }
        // One component more that is only what its alternatives begin with, the shallowest first, as BigGraphite does.
        while narrowed < parts.len() && !merge_fixed(&mut parts[narrowed]) {
            narrowed += 1;
        }
        if narrowed == parts.len() {
            break;
        }
    }
    let is_one = |alternatives: &&Vec<Part>| matches!(alternatives[..], [Part::Exact(_) | Part::Prefix(_)]);
    let steps = parts.iter().take_while(is_one).filter_map(|alternatives| step(alternatives.first()?)).collect();
    vec![Shape { steps, is_open: true }]
}

/// Replaces the fixed alternatives of a component by their common prefix; `false` where there are fewer than two.
fn merge_fixed(alternatives: &mut Vec<Part>) -> bool {
    let mut fixed = alternatives.iter().filter_map(|part| match part {
        Part::Exact(text) | Part::Prefix(text) => Some(text.as_str()),
        Part::Nothing | Part::AnyDepth => None,
    });
    let Some(first) = fixed.next() else { return false };
    let mut common = first;
    let mut others = 0;
    for text in fixed {
        let same = common.chars().zip(text.chars()).take_while(|(a, b)| a == b).map(|(char, _)| char.len_utf8()).sum();
        common = &common[..same];
        others += 1;
    }
    if others == 0 {
        return false;
    }
    let merged = Part::Prefix(common.to_owned());
    alternatives.retain(|part| matches!(part, Part::Nothing | Part::AnyDepth));
    alternatives.push(merged);
    true
}

fn step(part: &Part) -> Option<Step> {
    match part {
        Part::Exact(text) => Some(Step::Exact(text.clone())),
        Part::Prefix(text) => Some(Step::Prefix(text.clone())),
        Part::Nothing | Part::AnyDepth => None,
    }
}

/// All shapes, sorted, each once; or `None` when there are more than `most`.
fn expand(parts: &[Vec<Part>], deepest: usize, most: usize) -> Option<Vec<Shape>> {
    let mut shapes = vec![Shape { steps: Vec::new(), is_open: false }];
    for (at, alternatives) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        let mut longer = Vec::new();
        for shape in &shapes {
            for part in alternatives {
                let depths = match part {
                    // None to as many as a name may have.
                    Part::AnyDepth if !is_last => 0..=deepest.saturating_sub(shape.steps.len()),
                    _ => 0..=0,
                };
                for depth in depths {
                    let mut shape = shape.clone();
                    shape.steps.extend(step(part));
                    shape.steps.extend(std::iter::repeat_n(Step::Prefix(String::new()), depth));
                    shape.is_open = is_last && *part == Part::AnyDepth;
                    if shape.steps.len() <= deepest {
                        longer.push(shape);
                    }
                }
            }
        }
        longer.sort_unstable();
        longer.dedup();
        if longer.len() > most {
            return None;
        }
        shapes = longer;
    }
    // An empty shape, as from `{a,}` alone, is not a name.
    shapes.retain(|shape| !shape.steps.is_empty() || shape.is_open);
    Some(shapes)
}

fn query(shape: &Shape, indexes: FoundIndexes) -> Query {
    let exact = |step: &Step| match step {
        Step::Exact(text) => Some(text.clone()),
        Step::Prefix(_) => None,
    };
    let known: Vec<String> = shape.steps.iter().map_while(exact).collect();
    let depth = shape.steps.len();
    if !shape.is_open && known.len() == depth {
        return Query { condition: "name = ?".to_owned(), filters: false, values: vec![known.join(".")] };
    }
    if matches!(indexes, FoundIndexes::None | FoundIndexes::Lucene) {
        // Without a usable index, all names must be read.
        return Query { condition: String::new(), filters: false, values: Vec::new() };
    }
    let mut conditions = Conditions { indexes, text: Vec::new(), values: Vec::new(), ranges: 0 };
    if !shape.is_open && known.len() + 1 == depth {
        let parent = known.iter().map(|component| format!("{component}.")).collect::<String>();
        conditions.equal("parent", if parent.is_empty() { ".".to_owned() } else { parent });
        if let Some(Step::Prefix(prefix)) = shape.steps.last() {
            conditions.prefix(depth - 1, prefix);
        }
    } else {
        for (at, step) in shape.steps.iter().enumerate() {
            match step {
                Step::Exact(text) => conditions.equal(&format!("component_{at}"), text.clone()),
                Step::Prefix(prefix) => conditions.prefix(at, prefix),
            }
        }
        if !shape.is_open {
            conditions.equal(&format!("component_{depth}"), LAST_COMPONENT.to_owned());
        }
    }
    let filters = conditions.text.len() > 1 || conditions.ranges > 0;
    Query { condition: conditions.text.join(" AND "), filters, values: conditions.values }
}

struct Conditions {
    indexes: FoundIndexes,
    text: Vec<String>,
    values: Vec<String>,
    ranges: usize,
}

impl Conditions {
    fn equal(&mut self, column: &str, value: String) {
        self.text.push(format!("{column} = ?"));
        self.values.push(value);
    }

    fn prefix(&mut self, component: usize, prefix: &str) {
        if prefix.is_empty() {
            return;
        }
        match self.indexes {
            // A percent sign in front would mean "contains", which these indexes do not answer.
            FoundIndexes::Sasi if prefix.starts_with('%') => {}
            FoundIndexes::Sasi => {
                self.text.push(format!("component_{component} LIKE ?"));
                self.values.push(format!("{prefix}%"));
                self.ranges += 1;
            }
            _ => {
                self.text.push(format!("component_{component} >= ?"));
                self.values.push(prefix.to_owned());
                self.ranges += 1;
                if let Some(end) = after_prefix(prefix) {
                    self.text.push(format!("component_{component} < ?"));
                    self.values.push(end);
                }
            }
        }
    }
}

/// The smallest text, by bytes, after all texts with this prefix.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        let mut codes = u32::from(last) + 1..=u32::from(char::MAX);
        if let Some(next) = codes.by_ref().find_map(char::from_u32) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

impl Query {
    /// The statement, for one of the tables of names, reading so many rows at most.
    pub(super) fn cql(&self, keyspace: &str, table: &str, limit: usize) -> String {
        let mut cql = format!("SELECT name FROM {}.{table}", quoted(keyspace));
        if !self.condition.is_empty() {
            cql.push_str(" WHERE ");
            cql.push_str(&self.condition);
        }
        cql.push_str(&format!(" LIMIT {limit}"));
        if self.filters {
            cql.push_str(" ALLOW FILTERING");
        }
        cql
    }

    /// Whether it reads all names.
    pub(super) fn is_everything(&self) -> bool {
        self.condition.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn statements(pattern: &str, indexes: FoundIndexes, most: usize) -> Vec<String> {
        let of_query = |query: Query| {
            let mut values = query.values.iter();
            let pieces: Vec<&str> = query.condition.split('?').collect();
            let mut text = pieces[0].to_owned();
            for piece in &pieces[1..] {
                text.push_str(&format!("'{}'{piece}", values.next().unwrap().replace('\'', "''")));
            }
            if query.filters {
                text.push_str(" ALLOW FILTERING");
            }
            text
        };
        plan(&globs::parts(pattern).unwrap(), 64, indexes, most).into_iter().map(of_query).collect()
    }

    fn check(pattern: &str, indexes: FoundIndexes, expected: Expect) {
        expected.assert_eq(&statements(pattern, indexes, 8).join("\n"));
    }

    /// A `**` before the last component is for BigGraphite one component or more, and at most so many that 42 statements are
    /// enough; `b**c` has three components. Here `**` also matches no component, and any depth, so 42 statements are too few.
    #[test]
    fn the_plan_equals_biggraphites_except_for_globs_of_any_depth() {
        let mut theirs: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
        for line in include_str!("../../tests/biggraphite/sasi.txt").lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [glob, "metrics", how, cql] = fields[..] else { continue };
            let (condition, rest) = match how {
                "by name" => (format!("name = '{cql}'"), ""),
                _ => {
                    let condition = cql.split_once(" WHERE ").map_or("", |(_, condition)| condition);
                    let (condition, rest) = condition.split_once(" LIMIT ").unwrap_or((condition, ""));
                    (condition.trim().to_owned(), rest)
                }
            };
            // A single equality needs no filtering; BigGraphite requests it anyway.
            let filters =
                rest.contains("ALLOW FILTERING") && (condition.contains(" AND ") || condition.contains(" LIKE "));
            let filters = if filters { " ALLOW FILTERING" } else { "" };
            theirs.entry(glob).or_default().push(format!("{condition}{filters}"));
        }
        let mut differing = Vec::new();
        for (glob, theirs) in &mut theirs {
            let mut ours = statements(glob, FoundIndexes::Sasi, 42);
            ours.sort();
            theirs.sort();
            theirs.dedup();
            if ours != *theirs {
                differing.push(*glob);
            }
        }
        assert_eq!(differing, ["**.z", "**b", "a.**.z", "b**c.d"]);
        assert!(theirs.len() > 25, "{}", theirs.len());
    }

    #[test]
    fn a_glob_of_any_depth_is_a_statement_for_each_depth() {
        let statements = statements("a.**.z", FoundIndexes::Sasi, 64);
        assert_eq!(statements.len(), 62);
        assert!(statements.contains(&"name = 'a.z'".to_owned()));
        let deepest = "component_0 = 'a' AND component_62 = 'z' AND component_63 = '__END__' ALLOW FILTERING";
        assert!(statements.contains(&deepest.to_owned()), "{statements:?}");
        check("a.**.z", FoundIndexes::Sasi, expect!["component_0 = 'a'"]);
    }

    #[test]
    fn a_plain_name_is_read_by_its_key() {
        check("a.b.c", FoundIndexes::None, expect!["name = 'a.b.c'"]);
        check(
            "a.{b,c}.d",
            FoundIndexes::None,
            expect![[r#"
            name = 'a.b.d'
            name = 'a.c.d'"#]],
        );
    }

    #[test]
    fn without_an_index_all_names_are_read() {
        check("a.*.c", FoundIndexes::None, expect![[""]]);
        check("{a.b,c*}", FoundIndexes::Lucene, expect![[""]]);
    }

    #[test]
    fn storage_attached_indexes_do_not_support_like() {
        check(
            "a.b*",
            FoundIndexes::Sai,
            expect!["parent = 'a.' AND component_1 >= 'b' AND component_1 < 'c' ALLOW FILTERING"],
        );
        check(
            "*.b*.c",
            FoundIndexes::Sai,
            expect![
                "component_1 >= 'b' AND component_1 < 'c' AND component_2 = 'c' AND component_3 = '__END__' ALLOW FILTERING"
            ],
        );
    }

    #[test]
    fn too_many_alternatives_become_their_common_prefix() {
        check(
            "a.{host1,host2,host3}.{x,y,z}",
            FoundIndexes::Sasi,
            expect![[r#"
            component_0 = 'a' AND component_1 LIKE 'host%' AND component_2 = 'x' AND component_3 = '__END__' ALLOW FILTERING
            component_0 = 'a' AND component_1 LIKE 'host%' AND component_2 = 'y' AND component_3 = '__END__' ALLOW FILTERING
            component_0 = 'a' AND component_1 LIKE 'host%' AND component_2 = 'z' AND component_3 = '__END__' ALLOW FILTERING"#]],
        );
        check("{a,b,c}.{a,b,c}.{a,b,c}.**.z", FoundIndexes::Sasi, expect![[""]]);
    }

    #[test]
    fn a_percent_sign_is_not_a_wildcard() {
        check("%a*", FoundIndexes::Sasi, expect!["parent = '.'"]);
        check("a%*", FoundIndexes::Sasi, expect!["parent = '.' AND component_0 LIKE 'a%%' ALLOW FILTERING"]);
    }

    #[test]
    fn a_pattern_that_no_name_can_match_needs_no_statement() {
        check("a.{}", FoundIndexes::Sasi, expect![[""]]);
        let deep = vec!["a*"; 64].join(".");
        check(&deep, FoundIndexes::Sasi, expect![[""]]);
    }

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        assert_eq!(after_prefix("ab").as_deref(), Some("ac"));
        assert_eq!(after_prefix("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(after_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(after_prefix("\u{10ffff}"), None);
    }
}
