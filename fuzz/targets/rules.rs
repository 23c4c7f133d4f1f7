//! Rule files: five files and names, separated by NUL. Decision and explanation agree for any of them.
#![no_main]

use carbon::{Decision, RuleFiles, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut parts = text.split('\0');
    let files = RuleFiles {
        schemas: parts.next(),
        aggregation: parts.next(),
        blacklist: parts.next(),
        whitelist: parts.next(),
        index: parts.next(),
    };
    match Rules::parse(files) {
        Err(errors) => {
            assert!(!errors.is_empty());
            errors.iter().for_each(|error| assert!(!error.to_string().is_empty()));
        }
        Ok((rules, warnings)) => {
            warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
            for name in parts.chain(["servers.a.cpu", ""]) {
                let explanation = rules.explain(name);
                let decision = rules.decide(name);
                assert_eq!(explanation.decision, decision);
                assert!(!explanation.to_string().is_empty());
                match decision {
                    Decision::Keep(index) => assert_eq!(rules.policy(index), explanation.policy),
                    Decision::Blacklisted => assert!(explanation.blacklist.is_some()),
                    Decision::NotWhitelisted => assert!(explanation.whitelist.is_none()),
                }
            }
        }
    }
});
