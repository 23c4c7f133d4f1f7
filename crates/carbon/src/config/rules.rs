//! The decision of all rule files together for a name.

use std::{collections::HashMap, fmt};

use metric::{Methods, Policy, Retention};

use super::{
    error::{ConfigError, Findings, Place, Warning},
    index_rules::{self, IndexRule},
    pattern::Pattern,
    sections::{self, AggregationRule, Schema},
};

const BLACKLIST_FILE: &str = "blacklist.conf";
const WHITELIST_FILE: &str = "whitelist.conf";

/// The text of each rule file; `None` where there is no such file.
#[derive(Debug, Clone, Copy, Default)]
pub struct RuleFiles<'a> {
    /// `storage-schemas.conf`.
    pub schemas: Option<&'a str>,
    /// `storage-aggregation.conf`.
    pub aggregation: Option<&'a str>,
    /// `blacklist.conf`.
    pub blacklist: Option<&'a str>,
    /// `whitelist.conf`.
    pub whitelist: Option<&'a str>,
    /// `index-rules.conf`.
    pub index: Option<&'a str>,
}

/// The rules of all files. Where a file is absent, carbon's default applies: a week of minutes, averaged, half of them
/// known, and every name accepted.
#[derive(Debug, Clone)]
pub struct Rules {
    blacklist: Vec<ListLine>,
    whitelist: Vec<ListLine>,
    schemas: Vec<Schema>,
    aggregation_rules: Vec<AggregationRule>,
    policies: Vec<Policy>,
    // Invariant: a policy for every schema, or none, with every aggregation rule, or none: the aggregation
    // rule changes fastest, and "none" is behind the last of each.
    combinations: Vec<PolicyIndex>,
    index_rules: Vec<IndexRule>,
}

/// A line of the blacklist or the whitelist.
#[derive(Debug, Clone)]
struct ListLine {
    place: Place,
    pattern: Pattern,
}

/// The number of a policy in its [`Rules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyIndex(u16);

impl PolicyIndex {
    /// The policy's place in [`Rules::policies`].
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// The decision for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Its points are kept, by this policy.
    Keep(PolicyIndex),
    /// The blacklist rejects it.
    Blacklisted,
    /// There is a whitelist, and no line of it matches.
    NotWhitelisted,
}

impl Default for Rules {
    fn default() -> Rules {
        let mut findings = Findings::default();
        Rules::read(RuleFiles::default(), &mut findings)
    }
}

impl Rules {
    /// Parses the files. Returns the rules and warnings about likely mistakes, or all errors.
    pub fn parse(files: RuleFiles<'_>) -> Result<(Rules, Vec<Warning>), Vec<ConfigError>> {
        let mut findings = Findings::default();
        let rules = Rules::read(files, &mut findings);
        findings.sort();
        if findings.errors.is_empty() { Ok((rules, findings.warnings)) } else { Err(findings.errors) }
    }

    /// The decision for a canonical name. The blacklist goes before the whitelist, an empty whitelist accepts all names,
    /// and the first matching schema and the first matching aggregation rule apply. Allocates nothing.
    pub fn decide(&self, name: &str) -> Decision {
        if self.blacklist.iter().any(|line| line.pattern.is_in(name)) {
            return Decision::Blacklisted;
        }
        if !self.whitelist.is_empty() && !self.whitelist.iter().any(|line| line.pattern.is_in(name)) {
            return Decision::NotWhitelisted;
        }
        Decision::Keep(self.combination(self.schema(name), self.aggregation_rule(name)))
    }

    /// A policy that [`Rules::decide`] of these rules gave.
    ///
    /// # Panics
    /// When the index comes from other rules that had more policies.
    pub fn policy(&self, index: PolicyIndex) -> &Policy {
        &self.policies[index.get()]
    }

    /// Every policy, by its index.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Whether `storage-schemas.conf` has any section. Without one, carbon's default applies to new metrics, and existing
    /// metrics keep their policies.
    pub fn has_schemas(&self) -> bool {
        !self.schemas.is_empty()
    }

    /// The rules of `index-rules.conf`. Of several that match a name, the first holds.
    pub fn index_rules(&self) -> &[IndexRule] {
        &self.index_rules
    }

    /// The same rules with the first method of each list alone, for tables that keep one value a slot. The second is whether any
    /// policy had several.
    pub fn with_first_methods(mut self) -> (Rules, bool) {
        let mut had_lists = false;
        for policy in &mut self.policies {
            had_lists |= !policy.rollups.is_empty();
            policy.rollups = Methods::NONE;
        }
        (self, had_lists)
    }

    /// The xFilesFactor that `storage-aggregation.conf` gives a canonical name; `None` where it says nothing. Allocates
    /// nothing.
    pub fn x_files_factor(&self, name: &str) -> Option<f64> {
        self.aggregation_rules.get(self.aggregation_rule(name))?.x_files_factor
    }

    /// Whether `storage-aggregation.conf` gives any name an xFilesFactor.
    pub fn has_x_files_factors(&self) -> bool {
        self.aggregation_rules.iter().any(|rule| rule.x_files_factor.is_some())
    }

    /// The decision for a canonical name, and the lines of the files that make it.
    pub fn explain(&self, name: &str) -> Explanation<'_> {
        let schema = self.schema(name);
        let aggregation_rule = self.aggregation_rule(name);
        let source = |place, pattern: &'_ Pattern| RuleSource { place, pattern: pattern.source().to_owned() };
        let first = |list: &[ListLine]| {
            list.iter().find(|line| line.pattern.is_in(name)).map(|line| source(line.place.clone(), &line.pattern))
        };
        Explanation {
            decision: self.decide(name),
            policy: self.policy(self.combination(schema, aggregation_rule)),
            blacklist: first(&self.blacklist),
            whitelist: first(&self.whitelist),
            schema: self.schemas.get(schema).map(|rule| source(rule.place.clone(), &rule.pattern)),
            aggregation: self
                .aggregation_rules
                .get(aggregation_rule)
                .map(|rule| source(rule.place.clone(), &rule.pattern)),
            is_aggregation_given: self
                .aggregation_rules
                .get(aggregation_rule)
                .is_some_and(|rule| rule.aggregation.is_some()),
            is_x_files_factor_given: self
                .aggregation_rules
                .get(aggregation_rule)
                .is_some_and(|rule| rule.x_files_factor.is_some()),
            hiding: self
                .index_rules
                .iter()
                .find(|rule| rule.matches(name))
                .map(|rule| (rule.max_stale, source(rule.place.clone(), &rule.pattern))),
        }
    }

    /// The first schema that matches; the number of schemas when none does.
    fn schema(&self, name: &str) -> usize {
        self.schemas.iter().position(|rule| rule.pattern.is_in(name)).unwrap_or(self.schemas.len())
    }

    /// The first aggregation rule that matches; the number of rules when none does.
    fn aggregation_rule(&self, name: &str) -> usize {
        let rules = &self.aggregation_rules;
        rules.iter().position(|rule| rule.pattern.is_in(name)).unwrap_or(rules.len())
    }

    fn combination(&self, schema: usize, aggregation_rule: usize) -> PolicyIndex {
        self.combinations[schema * (self.aggregation_rules.len() + 1) + aggregation_rule]
    }

    fn read(files: RuleFiles<'_>, findings: &mut Findings) -> Rules {
        let schemas = files.schemas.map_or_else(Vec::new, |text| sections::schemas(text, findings));
        let aggregation_rules = sections::aggregation_rules(files.aggregation.unwrap_or_default(), findings);
        let (policies, combinations) = combine(&schemas, &aggregation_rules, findings);
        Rules {
            blacklist: list(BLACKLIST_FILE, files.blacklist.unwrap_or_default(), findings),
            whitelist: list(WHITELIST_FILE, files.whitelist.unwrap_or_default(), findings),
            schemas,
            aggregation_rules,
            policies,
            combinations,
            index_rules: index_rules::index_rules(files.index.unwrap_or_default(), findings),
        }
    }
}

/// Every policy once, and the one of every schema with every aggregation rule.
fn combine(
    schemas: &[Schema],
    aggregation_rules: &[AggregationRule],
    findings: &mut Findings,
) -> (Vec<Policy>, Vec<PolicyIndex>) {
    let default = Policy::default();
    let mut policies = Vec::new();
    let mut known: HashMap<(&Retention, Methods, u64), PolicyIndex> = HashMap::new();
    let mut combinations = Vec::with_capacity((schemas.len() + 1) * (aggregation_rules.len() + 1));
    let retentions = schemas.iter().map(|schema| &schema.retention).chain([&default.retention]);
    if !schemas.is_empty() && schemas.iter().all(|schema| schema.retention.stages().len() == 1) {
        for rule in aggregation_rules.iter().filter(|rule| rule.aggregation.is_some_and(|methods| 1 < methods.len())) {
            let message =
                "several aggregation methods have no effect: each retention of storage-schemas.conf has one stage";
            findings.warning(&rule.place, message);
        }
    }
    for retention in retentions {
        for rule in aggregation_rules.iter().map(Some).chain([None]) {
            let methods = rule.and_then(|rule| rule.aggregation).unwrap_or(default.methods());
            let x_files_factor = rule.and_then(|rule| rule.x_files_factor).unwrap_or(default.x_files_factor);
            let index = *known.entry((retention, methods, x_files_factor.to_bits())).or_insert_with(|| {
                let policy = Policy { retention: retention.clone(), x_files_factor, ..Policy::default() };
                policies.push(policy.with_methods(methods));
                PolicyIndex(u16::try_from(policies.len() - 1).unwrap_or(u16::MAX))
            });
            combinations.push(index);
        }
    }
    if policies.len() > usize::from(u16::MAX) {
        let place = Place { file: sections::SCHEMAS_FILE, line: 1, section: None };
        findings.error(
            &place,
            format!("the schemas and aggregation rules make {} different policies; 65535 are possible", policies.len()),
        );
    }
    (policies, combinations)
}

/// A list file: a pattern a line, `#` before a comment.
fn list(file: &'static str, text: &str, findings: &mut Findings) -> Vec<ListLine> {
    let mut lines = Vec::new();
    for (i, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let source = line.trim();
        if source.is_empty() || source.starts_with('#') {
            continue;
        }
        let place = Place { file, line: i + 1, section: None };
        match Pattern::new(source) {
            Ok(pattern) => lines.push(ListLine { place, pattern }),
            Err(message) => findings.error(&place, message),
        }
    }
    lines
}

/// A rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSource {
    /// Its place.
    pub place: Place,
    /// What it matches.
    pub pattern: String,
}

/// `storage-schemas.conf:12: [carbon]: '^carbon\.'`.
impl fmt::Display for RuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: '{}'", self.place, self.pattern)
    }
}

/// The reasons for the decision for a name. `plumbago explain` prints its `Display`.
#[derive(Debug, Clone)]
pub struct Explanation<'a> {
    /// The decision for the name.
    pub decision: Decision,
    /// How it is kept, or would be if the lists let it pass.
    pub policy: &'a Policy,
    /// The first line of `blacklist.conf` that matches.
    pub blacklist: Option<RuleSource>,
    /// The first line of `whitelist.conf` that matches.
    pub whitelist: Option<RuleSource>,
    /// The section of `storage-schemas.conf` that matches first; none where carbon's default applies.
    pub schema: Option<RuleSource>,
    /// The section of `storage-aggregation.conf` that matches first; none where carbon's default applies.
    pub aggregation: Option<RuleSource>,
    /// Whether that section names a method.
    pub is_aggregation_given: bool,
    /// Whether that section names an xFilesFactor.
    pub is_x_files_factor_given: bool,
    /// The section of `index-rules.conf` that matches first, and the seconds without points after which searches leave the
    /// metric out; none of them where they never do.
    pub hiding: Option<(Option<u64>, RuleSource)>,
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.decision, &self.blacklist, &self.whitelist) {
            (Decision::Blacklisted, Some(line), _) => writeln!(f, "rejected: {line} matches")?,
            (Decision::Blacklisted, None, _) => writeln!(f, "rejected: blacklist.conf matches")?,
            (Decision::NotWhitelisted, ..) => writeln!(f, "rejected: no line of whitelist.conf matches")?,
            (Decision::Keep(_), _, Some(line)) => writeln!(f, "accepted: {line} matches")?,
            (Decision::Keep(_), _, None) => writeln!(f, "accepted: no line of blacklist.conf matches")?,
        }
        let no_schema = "no section of storage-schemas.conf matches: carbon's default";
        let no_rule = "no section of storage-aggregation.conf matches: carbon's default";
        let or = |source: &Option<RuleSource>, otherwise: &str| match source {
            Some(source) => source.to_string(),
            None => otherwise.to_owned(),
        };
        let given = |is_given| if is_given { "" } else { ", which does not say: carbon's default" };
        let schema = or(&self.schema, no_schema);
        let rule = or(&self.aggregation, no_rule);
        let (method_given, factor_given) = match self.aggregation {
            Some(_) => (given(self.is_aggregation_given), given(self.is_x_files_factor_given)),
            None => ("", ""),
        };
        for (i, stage) in self.policy.retention.stages().iter().enumerate() {
            // To four places, and none where they are zeros: `7 days`, `0.0417 days`.
            let days = (stage.duration() as f64 / 8.64).round() / 1e4;
            let (points, resolution) = (stage.points(), stage.resolution());
            write!(f, "stage {i}: {points} points of {resolution} s, {days} days")?;
            writeln!(f, "{}", if i == 0 { format!("  ({schema})") } else { String::new() })?;
        }
        let methods = self.policy.methods();
        let without_effect = match self.policy.coarse_tables() {
            0 if 1 < methods.len() => "; one stage has no aggregates, so that the methods have no effect",
            _ => "",
        };
        writeln!(f, "aggregation: {methods}  ({rule}{method_given}{without_effect})")?;
        write!(f, "xFilesFactor: {}  ({rule}{factor_given})", self.policy.x_files_factor)?;
        match &self.hiding {
            Some((Some(seconds), rule)) => {
                let days = (*seconds as f64 / 8.64).round() / 1e4;
                write!(f, "\nhidden from searches: {days} days after its last point  ({rule})")
            }
            Some((None, rule)) => write!(f, "\nhidden from searches: never  ({rule})"),
            None => Ok(()),
        }
    }
}
