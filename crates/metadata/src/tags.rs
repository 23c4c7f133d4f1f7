//! Tagged metrics.
//!
//! A find looks at every tagged metric. An index over tags and values could replace that walk behind the same
//! call, [`Registry::tagged`].

use metric::MetricId;

use crate::{
    found::Found,
    limits::{Budget, FindError, FindLimits},
    registry::Registry,
    tag_expressions::TagExpressions,
};

/// Names looked at in one hold of the lock.
const BATCH: usize = 1024;

/// What a name costs, in steps of [`FindLimits::steps`]: with its limit as it is by default, ten million names.
const STEPS_PER_NAME: u64 = 10;

impl Registry {
    /// The tagged metrics for which all expressions hold, in the order of names.
    pub fn tagged(&self, expressions: &TagExpressions, limits: &FindLimits) -> Result<Found, FindError> {
        let mut budget = Budget::new(limits);
        let tagged = self.names.read().tagged.clone();
        let mut found = Found::default();
        for ids in tagged.chunks(BATCH) {
            let names = self.read();
            for &id in ids {
                budget.spend(STEPS_PER_NAME).map_err(|error| match error {
                    FindError::TooMuchWork => FindError::TooManyTagged { limit: limits.steps / STEPS_PER_NAME },
                    other => other,
                })?;
                let name = names.name(id);
                if names.is_shown(id) && expressions.take(name)? && limits.shown(name, id, false).0 != MetricId::NONE {
                    found.push(name, id, false)?;
                }
            }
            drop(names);
            budget.check_nodes(found.len())?;
        }
        found.sorted()
    }
}

#[cfg(test)]
mod tests {
    use metric::Policy;
    use regex_automata::meta::Regex;

    use super::*;
    use crate::tag_expressions::Matcher;

    fn compile(pattern: &str) -> Result<Matcher, String> {
        let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
        Ok(Box::new(move |value| Ok(regex.is_match(value))))
    }

    fn registry(names: &[&str]) -> Registry {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in names {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 7);
        }
        registry
    }

    fn tagged(registry: &Registry, texts: &[&str]) -> Vec<String> {
        let expressions = TagExpressions::read(texts, compile).unwrap();
        let found = registry.tagged(&expressions, &FindLimits::default()).unwrap();
        found.leaves().map(|(_, name)| name.to_owned()).collect()
    }

    #[test]
    fn a_metric_is_found_by_its_tags() {
        let registry = registry(&["b;dc=x;rack=1", "a;dc=x", "a;dc=y;rack=2", "a.dc", "odd;dc", "odd;dc=x;rack=~"]);
        assert_eq!(tagged(&registry, &["dc=x"]), ["a;dc=x", "b;dc=x;rack=1"]);
        assert_eq!(tagged(&registry, &["dc=x", "rack="]), ["a;dc=x"]);
        assert_eq!(tagged(&registry, &["rack!="]), ["a;dc=y;rack=2", "b;dc=x;rack=1"]);
        assert_eq!(tagged(&registry, &["name=a", "dc!=x"]), ["a;dc=y;rack=2"]);
        assert_eq!(tagged(&registry, &["dc=~[xy]", "rack!=~1|3"]), ["a;dc=x", "a;dc=y;rack=2"]);
        assert_eq!(tagged(&registry, &["name=~.", "rack=~(2|)$"]), ["a;dc=x", "a;dc=y;rack=2"]);
    }

    #[test]
    fn hidden_metrics_are_not_found_and_saved_ones_are() {
        let hiding = registry(&["a;t=1", "b;t=1"]);
        hiding.hide(&[metric::MetricId(0)]);
        assert_eq!(tagged(&hiding, &["t=1"]), ["b;t=1"]);
        hiding.write().create(hiding.hash(b"a;t=1"), "a;t=1", 0, 8);
        assert_eq!(tagged(&hiding, &["t=1"]), ["a;t=1", "b;t=1"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        hiding.save(&host::SystemDisk, &path).unwrap();
        assert_eq!(tagged(&Registry::open(&host::SystemDisk, &path).unwrap(), &["t=1"]), ["a;t=1", "b;t=1"]);
    }

    #[test]
    fn an_invalid_tag_expression_is_an_error_with_a_reason() {
        let check = |texts: &[&str], words: &str| {
            assert_eq!(TagExpressions::read(texts, compile).unwrap_err().to_string(), words);
        };
        check(&[], "At least one tagspec must not match the empty string");
        check(&["a=", "b!=c", "d=~.*", "e!=~x"], "At least one tagspec must not match the empty string");
        for text in ["", "a", "=b", "a;b=c", "a=b;c", "a!b"] {
            check(&["x=y", text], &format!("Invalid tagspec {text}"));
        }
        assert!(
            TagExpressions::read(&["a=~("], compile).unwrap_err().to_string().starts_with("the pattern of 'a=~(' ")
        );
        check(&["a=b"; 101], "there are more than 100 tag expressions");
        assert!(TagExpressions::read(&["a~=b"], compile).is_ok(), "a tag may end in a tilde");
    }

    #[test]
    fn a_search_through_too_many_names_is_an_error() {
        let names: Vec<String> = (0..5000).map(|i| format!("m{i};t=1")).collect();
        let registry = registry(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let all = TagExpressions::read(&["t=1"], compile).unwrap();
        let limits = FindLimits { nodes: 100, ..FindLimits::default() };
        assert_eq!(registry.tagged(&all, &limits), Err(FindError::TooManyNodes { limit: 100 }));
        let limits = FindLimits { steps: 1000, ..FindLimits::default() };
        assert_eq!(registry.tagged(&all, &limits), Err(FindError::TooManyTagged { limit: 100 }));
    }
}
