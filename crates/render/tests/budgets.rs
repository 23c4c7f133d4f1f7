//! Small targets that would take gigabytes or minutes are rejected before they do.

use render::{Budget, Context, Data, Error, Evaluation, Series, evaluate, parse, plan};

/// The answer to a target over 1,000 series with long names, within a budget of a million points.
fn answer(target: &str) -> Result<usize, Error> {
    let target = parse(target).expect("a target");
    let context = Context::new(1_700_000_000, 1_699_999_700, 1_700_000_000);
    let targets = [target];
    let mut data = Data::default();
    for fetch in plan(&targets, &context)?.series {
        let name = |i: usize| format!("{}.host-{i:05}", "long-component".repeat(8));
        let span = fetch.span;
        let series = (0..1000).map(|i| Series::fetched(&name(i), "a.*".into(), span.from, 60, vec![1.0; 5])).collect();
        data.put(fetch, series);
    }
    let budget = Budget { points: 1_000_000, cancelled: &|| false };
    match evaluate(&targets, &context, &data, &budget)? {
        Evaluation::Done(series) => Ok(series.len()),
        Evaluation::Fetch(_) => panic!("one round of fetches is enough"),
    }
}

#[test]
fn names_that_functions_make_of_nodes_are_counted() {
    let nodes = |count: usize| vec!["0"; count].join(",");
    assert_eq!(answer(&format!("aliasByNode(a.*,{},1)", nodes(3))), Ok(1000));
    for target in [
        format!("aliasByNode(a.*,{})", nodes(4000)),
        format!("groupByNodes(a.*,'sum',1,{})", nodes(4000)),
        format!("mapSeries(a.*,1,{})", nodes(4000)),
        format!("asPercent(a.*,None,1,{})", nodes(4000)),
        format!("aliasByTags(a.*,{})", nodes(4000)),
        format!("weightedAverage(a.*,a.*,1,{})", nodes(4000)),
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
