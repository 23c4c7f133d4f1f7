//! Small targets that would take gigabytes or minutes are rejected before they do.

use std::sync::atomic::{AtomicUsize, Ordering};

use render::{Budget, Context, Data, Error, Evaluation, Series, evaluate, parse, plan};

/// The answer to a target over 1,000 series with long names, within a budget of a million points.
fn answer(target: &str) -> Result<usize, Error> {
    let target = parse(target).expect("a target");
    let context = Context::new(1_700_000_000, 1_699_999_700, 1_700_000_000);
    let targets = [target];
    let mut data = Data::default();
    for fetch in plan(&targets, &context, &Budget::unlimited())?.series {
        let name = |i: usize| format!("{}.host-{i:05}", "long-component".repeat(8));
        let span = fetch.span;
        let series = (0..1000).map(|i| Series::fetched(&name(i), "a.*".into(), span.from, 60, vec![1.0; 5])).collect();
        data.put(fetch, series);
    }
    let budget = Budget::new(1_000_000, &|| false);
    match evaluate(&targets, &context, &data, &budget)? {
        Evaluation::Done(series) => Ok(series.len()),
        Evaluation::Fetch(_) => panic!("one round of fetches is enough"),
    }
}

#[test]
fn names_that_functions_make_of_nodes_and_tags_are_counted() {
    let nodes = |count: usize| vec!["0"; count].join(",");
    assert_eq!(answer(&format!("aliasByNode(a.*,{},1)", nodes(3))), Ok(1000));
    for target in [
        format!("aliasByNode(a.*,{})", nodes(4000)),
        format!("groupByNodes(a.*,'sum',1,{})", nodes(4000)),
        format!("mapSeries(a.*,1,{})", nodes(4000)),
        format!("asPercent(a.*,None,1,{})", nodes(4000)),
        format!("aliasByTags(a.*,{})", nodes(4000)),
        format!("groupByTags(a.*,'sum',{})", vec!["'dc'"; 4000].join(",")),
        format!("weightedAverage(a.*,a.*,1,{})", nodes(4000)),
    ] {
        assert_eq!(answer(&target), Err(Error::Budget { points: 1_000_000 }), "{}…", &target[..30]);
    }
}

#[test]
fn texts_that_functions_copy_into_each_series_are_counted_before() {
    let text = |bytes: usize| "x".repeat(bytes);
    assert_eq!(answer(&format!("alias(a.*,'{}')", text(512))), Ok(1000));
    // One series may have a long text.
    assert_eq!(answer(&format!("alias(constantLine(5),'{}')", text(20_000))), Ok(1));
    for target in [
        format!("alias(a.*,'{}')", text(20_000)),
        format!("color(a.*,'{}')", text(20_000)),
        format!("countSeries(color(a.*,'{}'))", text(20_000)),
        format!("cactiStyle(a.*,'si','{}')", text(20_000)),
        format!("aliasSub(a.*,'^.*$','{}')", text(20_000)),
        format!("asPercent(a.*,alias(constantLine(5),'{}'))", text(20_000)),
        format!("divideSeries(a.*,alias(constantLine(5),'{}'))", text(20_000)),
    ] {
        assert_eq!(answer(&target), Err(Error::Budget { points: 1_000_000 }), "{}…", &target[..30]);
    }
}

#[test]
fn a_template_has_few_values() {
    let values = |count: usize| (0..count).map(|i| format!("v{i}='x'")).collect::<Vec<_>>().join(",");
    assert_eq!(answer(&format!("template(a.$v7,{})", values(200))), Ok(1000));
    let rejected = Err(Error::TemplateValues { most: 256 });
    assert_eq!(answer(&format!("template(a.$v7,{})", values(300))), rejected);
    assert_eq!(answer(&format!("sumSeries(template(a.$v7,{}))", values(300))), rejected);
}

/// What a target over 1,000 series of 1,000 points reserves.
fn reserved(target: &str, limit: usize) -> Result<usize, Error> {
    let target = parse(target).expect("a target");
    let context = Context::new(1_700_000_000, 1_699_940_000, 1_700_000_000);
    let targets = [target];
    let mut data = Data::default();
    for fetch in plan(&targets, &context, &Budget::unlimited())?.series {
        let span = fetch.span;
        let one = |i: usize| Series::fetched(&format!("a.{i}"), "a.*".into(), span.from, 60, vec![1.0; 1000]);
        data.put(fetch, (0..1000).map(one).collect());
    }
    let most = AtomicUsize::new(0);
    let memory = |bytes: usize| {
        most.fetch_max(bytes, Ordering::Relaxed);
        bytes <= limit
    };
    let budget = Budget { memory: &memory, ..Budget::unlimited() };
    evaluate(&targets, &context, &data, &budget)?;
    Ok(most.into_inner())
}

#[test]
fn memory_is_reserved_before_functions_take_it() {
    const VALUES: usize = 8_000_000;
    let values = |target: &str| reserved(target, usize::MAX).map(|bytes| bytes as f64 / VALUES as f64);
    // Series that are passed on share their values with the data.
    assert!(values("alias(a.*,'x')").unwrap() < 0.8);
    assert!((1.0..2.0).contains(&values("scale(a.*,2)").unwrap()));
    // The inner values are freed when the outer ones are made.
    let nested = values("scale(scale(scale(scale(scale(a.*,2),2),2),2),2)").unwrap();
    assert!((1.0..2.6).contains(&nested), "{nested}");
    assert!(values("sumSeries(a.*)").unwrap() < 0.8);
    for target in ["scale(a.*,2)", "movingAverage(a.*,'5min')", "offset(scale(a.*,2),1)", "summarize(a.*,'1min')"] {
        assert_eq!(reserved(target, VALUES / 2), Err(Error::Memory), "{target}");
    }
}

#[test]
fn targets_that_functions_make_are_counted() {
    let long = "x".repeat(60_000);
    for target in [
        format!("applyByNode(a.*,1,'{long}')"),
        format!("applyByNode(a.*,1,'{}')", "x".repeat(1_000_000)),
        format!("aliasQuery(a.*,'^.*$','{long}','b')"),
    ] {
        assert_eq!(answer(&target), Err(Error::Budget { points: 1_000_000 }), "{}…", &target[..30]);
    }
    let above = answer(&format!("useSeriesAbove(a.*,0,'^.*$','{long}')")).unwrap_err().to_string();
    assert_eq!(above, "useSeriesAbove: makes a target of more than 1048576 bytes");
}

#[test]
fn all_templates_of_a_request_share_their_bytes() {
    let mut context = Context::new(1_700_000_000, 1_699_999_700, 1_700_000_000);
    context.template = vec![("a".to_owned(), "x".repeat(100_000))];
    let targets = |count: usize| vec![parse("template(i$a)").expect("a target"); count];
    let planned = |count| plan(&targets(count), &context, &Budget::unlimited()).map(|fetches| fetches.series.len());
    assert_eq!(planned(40), Ok(1));
    assert_eq!(planned(45), Err(Error::Filled { most: 4 << 20 }));
    let evaluated = |count| evaluate(&targets(count), &context, &Data::new(), &Budget::unlimited()).map(|_| ());
    assert_eq!(evaluated(40), Ok(()));
    assert_eq!(evaluated(45), Err(Error::Filled { most: 4 << 20 }));
    let cancelled = Budget::new(1_000_000, &|| true);
    assert_eq!(plan(&targets(1), &context, &cancelled), Err(Error::Cancelled));
    let paths = vec![parse("group(a,b,c,d,e,f)").expect("a target"); 1000];
    assert_eq!(plan(&paths, &context, &cancelled), Err(Error::Cancelled));
}
