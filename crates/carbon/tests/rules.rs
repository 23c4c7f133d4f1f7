//! The rule files as facts: carbon's dialect, go-carbon's, and the messages about mistakes.

use carbon::{Decision, RuleFiles, Rules};
use expect_test::{Expect, expect};

/// What a carbon installation begins with, in our words: its own metrics, then a day of minutes.
const SCHEMAS: &str = r"
# Carbon's own metrics.
[carbon]
pattern = ^carbon\.
retentions = 60:90d

[default_1min_for_1day]
pattern = .*
retentions = 60s:1d,5m:30d
";

/// The usual rules for the ends of names.
const AGGREGATION: &str = r"
[min]
pattern = \.min$
xFilesFactor = 0.1
aggregationMethod = min

[max]
pattern = \.max$
xFilesFactor = 0.1
aggregationMethod = max

[count]
pattern = \.count$
xFilesFactor = 0
aggregationMethod = sum

[default_average]
pattern = .*
xFilesFactor = 0.5
aggregationMethod = average
";

fn schemas(text: &str) -> RuleFiles<'_> {
    RuleFiles { schemas: Some(text), ..RuleFiles::default() }
}

fn aggregation(text: &str) -> RuleFiles<'_> {
    RuleFiles { aggregation: Some(text), ..RuleFiles::default() }
}

/// The messages about files: every error, or every warning and then the decision for each name.
fn check(files: RuleFiles<'_>, names: &[&str], expected: Expect) {
    let mut said = String::new();
    match Rules::parse(files) {
        Err(errors) => errors.iter().for_each(|error| said += &format!("error: {error}\n")),
        Ok((rules, warnings)) => {
            warnings.iter().for_each(|warning| said += &format!("warning: {warning}\n"));
            for name in names {
                said += &match rules.decide(name) {
                    Decision::Keep(index) => {
                        let policy = rules.policy(index);
                        format!("{name}: {} {} {}\n", policy.retention, policy.methods(), policy.x_files_factor)
                    }
                    rejected => format!("{name}: {rejected:?}\n"),
                };
            }
        }
    }
    expected.assert_eq(&said);
}

#[test]
fn without_files_carbons_defaults_hold() {
    check(
        RuleFiles::default(),
        &["a.b"],
        expect![[r#"
        a.b: 10080*60s average 0.5
    "#]],
    );
    assert_eq!(Rules::default().policies(), [metric::Policy::default()]);
}

#[test]
fn the_usual_files_mean_the_same_as_in_carbon() {
    let files = RuleFiles { schemas: Some(SCHEMAS), aggregation: Some(AGGREGATION), ..RuleFiles::default() };
    check(
        files,
        &["carbon.agents.a.cpuUsage", "carbon.a.count", "a.min", "a.max", "a.count", "xcarbon.a", "a.minx"],
        expect![[r#"
            carbon.agents.a.cpuUsage: 129600*60s average 0.5
            carbon.a.count: 129600*60s sum 0
            a.min: 1440*60s:8640*300s min 0.1
            a.max: 1440*60s:8640*300s max 0.1
            a.count: 1440*60s:8640*300s sum 0
            xcarbon.a: 1440*60s:8640*300s average 0.5
            a.minx: 1440*60s:8640*300s average 0.5
        "#]],
    );
}

#[test]
fn the_first_section_that_matches_holds() {
    check(
        schemas("[a]\npattern = a\nretentions = 1s:1d\n[b]\npattern = b\nretentions = 2s:1d\n"),
        &["a", "b", "ab", "A", "c"],
        expect![[r#"
            a: 86400*1s average 0.5
            b: 43200*2s average 0.5
            ab: 86400*1s average 0.5
            A: 10080*60s average 0.5
            c: 10080*60s average 0.5
        "#]],
    );
}

#[test]
fn keys_are_of_any_case_and_colons_separate_as_well() {
    check(
        aggregation("[s]\nPATTERN: ^a\nXFilesFactor=0.25\naggregationmethod : last\n"),
        &["a", "b"],
        expect![[r#"
        a: 10080*60s last 0.25
        b: 10080*60s average 0.5
    "#]],
    );
}

#[test]
fn absent_keys_of_an_aggregation_section_have_carbons_default() {
    check(
        aggregation(
            "[m]\npattern = ^m\naggregationMethod = absmax\n[x]\npattern = ^x\nxFilesFactor = 1\n[n]\npattern = ^n\n[rest]\npattern=.*\naggregationMethod = avg\n",
        ),
        &["m", "x", "n", "y"],
        expect![[r#"
            m: 10080*60s absmax 0.5
            x: 10080*60s average 1
            n: 10080*60s average 0.5
            y: 10080*60s average 0.5
        "#]],
    );
}

#[test]
fn values_continue_in_indented_lines() {
    check(
        schemas(
            "[a]\npattern = ^a\nretentions = 60s:1d,\n  # the coarse one\n  1h:30d\n[b]\n  pattern = ^b\n  retentions = 60s:2d\n",
        ),
        &["a", "b"],
        expect![[r#"
            a: 1440*60s:720*3600s average 0.5
            b: 2880*60s average 0.5
        "#]],
    );
}

#[test]
fn quotes_are_dropped_and_percent_signs_are_read_either_way() {
    check(
        schemas(
            "[a]\npattern = \"^a%%b$\"\nretentions = '1s:1d'\n[b]\npattern = ^b%\nretentions = 2s:1d\n[c]\npattern = ^c[=:]\nretentions = 3s:1d\n",
        ),
        &["a%b", "b%", "b", "c=", "c:"],
        expect![[r#"
            a%b: 86400*1s average 0.5
            b%: 43200*2s average 0.5
            b: 10080*60s average 0.5
            c=: 28800*3s average 0.5
            c:: 28800*3s average 0.5
        "#]],
    );
}

#[test]
fn sections_inherit_from_default() {
    check(
        schemas("[DEFAULT]\nretentions = 10s:1d\n[a]\npattern = ^a\n[b]\npattern = ^b\nretentions = 20s:1d\n"),
        &["a", "b", "c"],
        expect![[r#"
            a: 8640*10s average 0.5
            b: 4320*20s average 0.5
            c: 10080*60s average 0.5
        "#]],
    );
}

#[test]
fn a_higher_priority_goes_first() {
    check(
        schemas(
            "[all]\npattern = .*\nretentions = 1s:1d\n[a]\npattern = ^a\npriority = 10\nretentions = 2s:1d\n[b]\npattern = ^b\npriority = high\nretentions = 3s:1d\n",
        ),
        &["a", "b"],
        expect![[r#"
            warning: storage-schemas.conf:4: [a]: 'priority' changes the order of the sections, as in go-carbon; carbon since 0.9 uses the order of the file
            warning: storage-schemas.conf:10: [b]: priority is 'high', which is not a whole number; 0 applies
            a: 43200*2s average 0.5
            b: 86400*1s average 0.5
        "#]],
    );
    // In the order of the file already: nothing to say.
    check(
        schemas("[a]\npattern = ^a\npriority = 10\nretentions = 2s:1d\n[all]\npattern = .*\nretentions = 1s:1d\n"),
        &["a", "b"],
        expect![[r#"
            a: 43200*2s average 0.5
            b: 86400*1s average 0.5
        "#]],
    );
}

#[test]
fn a_repetition_is_a_warning_with_both_lines() {
    check(
        schemas("[a]\npattern = ^a\nretentions = 1s:1d\nretentions = 2s:1d\n[a]\npattern = .\nretentions = 3s:1d\n"),
        &["a", "b"],
        expect![[r#"
            warning: storage-schemas.conf:4: [a]: repeats 'retentions' on line 3; the last one applies, as in go-carbon (carbon would not start)
            warning: storage-schemas.conf:5: [a]: repeats the section on line 1; both apply, as in go-carbon (carbon would not start)
            a: 43200*2s average 0.5
            b: 28800*3s average 0.5
        "#]],
    );
}

#[test]
fn sections_that_carbon_skips_are_skipped_with_a_warning() {
    check(
        schemas(
            "[no_pattern]\nretentions = 1s:1d\n[no_retentions]\npattern = .*\n[rejected]\npattern = .*\nretentions = 60s:1d,90s:2d\n[rest]\npattern = .*\nretentions = 5s:1d\n",
        ),
        &["a"],
        expect![[r#"
            warning: storage-schemas.conf:1: [no_pattern]: there is no pattern; the section is skipped, as carbon does
            warning: storage-schemas.conf:3: [no_retentions]: there are no retentions; the section is skipped, as carbon does
            warning: storage-schemas.conf:7: [rejected]: a precision of 90 s is not a multiple of 60 s; every precision must be a multiple of the one before it; the section is skipped, as carbon does
            a: 17280*5s average 0.5
        "#]],
    );
    check(
        aggregation(
            "[no_pattern]\nxFilesFactor = 1\n[word]\npattern = .*\nxFilesFactor = half\naggregationMethod = sum\n",
        ),
        &["a"],
        expect![[r#"
            warning: storage-aggregation.conf:1: [no_pattern]: there is no pattern; the section is skipped, as carbon does
            warning: storage-aggregation.conf:5: [word]: xFilesFactor is 'half', which is not a number; the section is skipped, as carbon does
            a: 10080*60s average 0.5
        "#]],
    );
}

#[test]
fn a_file_without_sections_is_a_warning() {
    check(
        schemas("# nothing\n"),
        &["a"],
        expect![[r#"
            warning: storage-schemas.conf:1: the file has no [section]: every new metric gets carbon's default, 10080*60s
            a: 10080*60s average 0.5
        "#]],
    );
}

#[test]
fn a_likely_mistake_is_a_warning() {
    check(
        schemas("[a]\npattern = ^a # all of a\nretention = 1s:1d\nretentions = 60s:1440\n"),
        &["a"],
        expect![[r#"
            warning: storage-schemas.conf:2: [a]: the pattern '^a # all of a' probably matches nothing: the comment after it is part of the pattern, as in carbon; put the comment on a line of its own
            warning: storage-schemas.conf:3: [a]: unknown key 'retention'; the keys are pattern, retentions, priority
            warning: storage-schemas.conf:4: [a]: '60s:1440' keeps 1440 points, as carbon reads it; go-carbon would read 1440 seconds: write the unit to be clear
            a: 10080*60s average 0.5
        "#]],
    );
    check(
        aggregation("[a]\npattern = ^a\n  ^b\naggregationMethod = sum,max\n"),
        &["a"],
        expect![[r#"
        warning: storage-aggregation.conf:2: [a]: the pattern '^a\n^b' probably matches nothing: it is continued on the next line, and no name has a line end
        a: 10080*60s average 0.5
    "#]],
    );
}

#[test]
fn a_list_of_methods_is_kept_in_its_order() {
    check(
        aggregation("[a]\npattern = ^a\naggregationMethod = avg, max,min\n"),
        &["a", "b"],
        expect![[r#"
            a: 10080*60s average,max,min 0.5
            b: 10080*60s average 0.5
        "#]],
    );
    for (list, problem) in [
        ("max,avg,max", "the method max is there twice; each may be there once"),
        (
            "avg,most",
            "'most' is not an aggregation method; use one of average, sum, last, max, min, avg_zero, absmax, absmin",
        ),
    ] {
        let text = format!("[a]\npattern = ^a\naggregationMethod = {list}\n");
        let errors: Vec<String> =
            Rules::parse(aggregation(&text)).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(errors, [format!("storage-aggregation.conf:3: [a]: {problem}")]);
    }
}

#[test]
fn a_method_of_a_list_that_no_query_can_ask_for_is_a_warning() {
    check(
        aggregation(
            "[a]\npattern = ^a\naggregationMethod = avg,absmax\n[b]\npattern = ^b\naggregationMethod = absmin,avg\n",
        ),
        &["a", "b"],
        expect![[r#"
            warning: storage-aggregation.conf:3: [a]: no query shows the rollup of absmax: consolidateBy has no such function; put it first, or leave it out
            a: 10080*60s average,absmax 0.5
            b: 10080*60s absmin,average 0.5
        "#]],
    );
}

#[test]
fn tables_of_one_method_get_the_first_of_a_list() {
    let text = "[a]\npattern = ^a\naggregationMethod = max,avg\n";
    let (rules, had_lists) = Rules::parse(aggregation(text)).unwrap().0.with_first_methods();
    let Decision::Keep(index) = rules.decide("a") else { panic!("no list rejects it") };
    assert_eq!((rules.policy(index).methods().to_string(), had_lists), ("max".to_owned(), true));
    assert!(!Rules::default().with_first_methods().1);
}

#[test]
fn an_explanation_shows_the_list_and_whether_it_has_an_effect() {
    let rule = "[a]\npattern = ^a\naggregationMethod = max,avg\n";
    let files = RuleFiles { schemas: Some("[all]\npattern = .*\nretentions = 60s:1d\n"), ..aggregation(rule) };
    check(
        files,
        &["a"],
        expect![[r#"
            warning: storage-aggregation.conf:1: [a]: several aggregation methods have no effect: each retention of storage-schemas.conf has one stage
            a: 1440*60s max,average 0.5
        "#]],
    );
    let line = |retentions: &str| {
        let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
        let files = RuleFiles { schemas: Some(&schemas), ..aggregation(rule) };
        let explained = Rules::parse(files).unwrap().0.explain("a").to_string();
        explained.lines().find(|line| line.starts_with("aggregation")).unwrap().to_owned()
    };
    assert_eq!(line("60s:1d,1h:30d"), "aggregation: max,average  (storage-aggregation.conf:1: [a]: '^a')");
    assert_eq!(
        line("60s:1d"),
        "aggregation: max,average  (storage-aggregation.conf:1: [a]: '^a'; one stage has no aggregates, so that the methods have no effect)"
    );
}

#[test]
fn keys_of_other_programs_pass_without_a_warning() {
    check(
        schemas("[a]\npattern = ^a\nretentions = 1s:1d\ncompressed = true\nreorderBuffer = 20\nxffMigration = true\n"),
        &["a"],
        expect![[r#"
            a: 86400*1s average 0.5
        "#]],
    );
}

#[test]
fn errors_name_the_file_the_line_and_a_remedy() {
    check(
        schemas(
            "pattern = x\n[a]\npattern = ^(?!carbon)\nretentions = 60s:1d\n[b]\npattern = ^b\nretentions = 60s:1M\nnonsense\n",
        ),
        &[],
        expect![[r#"
            error: storage-schemas.conf:1: 'pattern = x' comes before the first [section]
            error: storage-schemas.conf:3: [a]: '^(?!carbon)' uses negative look-ahead '(?!…)', which cannot be searched in linear time; write it without
            error: storage-schemas.conf:7: [b]: '60s:1M': 'M' is not a unit of time; use one of s, m, h, d, w, y (m is minutes; there are no months)
            error: storage-schemas.conf:8: [b]: 'nonsense' is neither a [section] nor a 'key = value'
        "#]],
    );
    check(
        aggregation(
            "[a]\npattern = ^a\nxFilesFactor = 50\n[b]\npattern = (\n[c]\npattern = c\naggregationMethod = median\n",
        ),
        &[],
        expect![[r#"
            error: storage-aggregation.conf:3: [a]: xFilesFactor is '50'; it must be from 0 to 1
            error: storage-aggregation.conf:5: [b]: '(' is not a regular expression: unclosed group
            error: storage-aggregation.conf:8: [c]: 'median' is not an aggregation method; use one of average, sum, last, max, min, avg_zero, absmax, absmin
        "#]],
    );
    check(
        RuleFiles { blacklist: Some("\n(a\n"), whitelist: Some("a\\"), ..RuleFiles::default() },
        &[],
        expect![[r#"
        error: blacklist.conf:2: '(a' is not a regular expression: unclosed group
        error: whitelist.conf:1: 'a\' ends in a backslash
    "#]],
    );
}

#[test]
fn index_rules_say_when_metrics_are_stale() {
    let parse = |text: &'static str| Rules::parse(RuleFiles { index: Some(text), ..RuleFiles::default() });
    let metrictanks = "[fast]\npattern = ^fast\nmax-stale = 36h\n\n[default]\npattern = \nmax-stale = 0\n";
    let (rules, warnings) = parse(metrictanks).unwrap();
    let stale_after = |name: &str| rules.index_rules().iter().find(|rule| rule.matches(name)).unwrap().max_stale;
    assert_eq!((stale_after("fast.a"), stale_after("slow.a"), warnings), (Some(129_600), None, vec![]));
    assert!(Rules::default().index_rules().is_empty());
    check(
        RuleFiles {
            index: Some("[a]\npattern = (\nmax-stale = 14x\n[b]\nmax-stale = 1d\n[c]\npattern = c\nages = 4\n"),
            ..RuleFiles::default()
        },
        &[],
        expect![[r#"
            error: index-rules.conf:2: [a]: '(' is not a regular expression: unclosed group
            error: index-rules.conf:3: [a]: max-stale: 'x' is not a unit of time; use one of s, m, h, d, w, y (m is minutes; there are no months); write a time such as 14d, or 0 for never
            error: index-rules.conf:4: [b]: the pattern is missing; write 'pattern = REGEX', 'pattern = .*' for all names
            error: index-rules.conf:6: [c]: max-stale is missing; write a time such as 'max-stale = 14d', or 0 for never
        "#]],
    );
    let many: String = (0..251).map(|i| format!("[{i}]\npattern = {i}\nmax-stale = 1d\n")).collect();
    let error = Rules::parse(RuleFiles { index: Some(&many), ..RuleFiles::default() }).unwrap_err();
    assert_eq!(
        error[0].to_string(),
        "index-rules.conf:751: [250]: this is rule 251; 250 are possible: put patterns together"
    );
}

#[test]
fn the_blacklist_goes_before_the_whitelist() {
    let blacklist = "# bad names\n\\.\\.\n  ^tmp\\.  \n";
    let files = RuleFiles { blacklist: Some(blacklist), ..RuleFiles::default() };
    check(
        files,
        &["a", "tmp.a", "a..b"],
        expect![[r#"
        a: 10080*60s average 0.5
        tmp.a: Blacklisted
        a..b: Blacklisted
    "#]],
    );
    let files = RuleFiles { whitelist: Some("^servers\\.\n^tmp"), ..files };
    check(
        files,
        &["a", "tmp.a", "tmpa", "servers.a"],
        expect![[r#"
        a: NotWhitelisted
        tmp.a: Blacklisted
        tmpa: 10080*60s average 0.5
        servers.a: 10080*60s average 0.5
    "#]],
    );
    let files = RuleFiles { whitelist: Some("# nothing yet\n\n"), ..files };
    check(
        files,
        &["a", "tmp.a"],
        expect![[r#"
        a: 10080*60s average 0.5
        tmp.a: Blacklisted
    "#]],
    );
}

#[test]
fn an_explanation_names_the_lines_that_decide() {
    let (rules, _) = Rules::parse(RuleFiles {
        schemas: Some(SCHEMAS),
        aggregation: Some("[a]\npattern = ^a\nxFilesFactor = 0\n"),
        blacklist: Some("^tmp\n"),
        whitelist: Some("^a\n^carbon\n^tmp\n"),
        index: Some("[a]\npattern = ^a\nmax-stale = 36h\n"),
    })
    .unwrap();
    let explained = |name: &str| format!("{}\n", rules.explain(name));
    expect![[r#"
        accepted: whitelist.conf:1: '^a' matches
        stage 0: 1440 points of 60 s, 1 days  (storage-schemas.conf:7: [default_1min_for_1day]: '.*')
        stage 1: 8640 points of 300 s, 30 days
        aggregation: average  (storage-aggregation.conf:1: [a]: '^a', which does not say: carbon's default)
        xFilesFactor: 0  (storage-aggregation.conf:1: [a]: '^a')
        hidden from searches: 1.5 days after its last point  (index-rules.conf:1: [a]: '^a')
    "#]]
    .assert_eq(&explained("a.b"));
    expect![[r#"
        accepted: whitelist.conf:2: '^carbon' matches
        stage 0: 129600 points of 60 s, 90 days  (storage-schemas.conf:3: [carbon]: '^carbon\.')
        aggregation: average  (no section of storage-aggregation.conf matches: carbon's default)
        xFilesFactor: 0.5  (no section of storage-aggregation.conf matches: carbon's default)
    "#]]
    .assert_eq(&explained("carbon.b"));
    expect![[r#"
        rejected: blacklist.conf:1: '^tmp' matches
        stage 0: 1440 points of 60 s, 1 days  (storage-schemas.conf:7: [default_1min_for_1day]: '.*')
        stage 1: 8640 points of 300 s, 30 days
        aggregation: average  (no section of storage-aggregation.conf matches: carbon's default)
        xFilesFactor: 0.5  (no section of storage-aggregation.conf matches: carbon's default)
    "#]]
    .assert_eq(&explained("tmp.b"));
    expect![[r#"
        rejected: no line of whitelist.conf matches
        stage 0: 1440 points of 60 s, 1 days  (storage-schemas.conf:7: [default_1min_for_1day]: '.*')
        stage 1: 8640 points of 300 s, 30 days
        aggregation: average  (no section of storage-aggregation.conf matches: carbon's default)
        xFilesFactor: 0.5  (no section of storage-aggregation.conf matches: carbon's default)
    "#]]
    .assert_eq(&explained("b"));
    expect![[r#"
        accepted: no line of blacklist.conf matches
        stage 0: 10080 points of 60 s, 7 days  (no section of storage-schemas.conf matches: carbon's default)
        aggregation: average  (no section of storage-aggregation.conf matches: carbon's default)
        xFilesFactor: 0.5  (no section of storage-aggregation.conf matches: carbon's default)
    "#]]
    .assert_eq(&format!("{}\n", Rules::default().explain("b")));
}

#[test]
fn equal_policies_are_one() {
    let many: String = (0..500).map(|i| format!("[{i}]\npattern = ^{i}$\nretentions = 60s:{}d\n", i % 3 + 1)).collect();
    let files = RuleFiles { schemas: Some(&many), aggregation: Some(AGGREGATION), ..RuleFiles::default() };
    let (rules, warnings) = Rules::parse(files).unwrap();
    assert!(warnings.is_empty());
    // Three retentions and the default, each with min, max, sum and average.
    assert_eq!(rules.policies().len(), 4 * 4);
}
