//! The functions that graphite-web does not have answer as carbonapi publishes: inputs and answers are those of its
//! own test tables (expr/functions/NAME/function_test.go), named at each test.

use render::{Budget, Context, Data, Error, Evaluation, Fetch, Series, evaluate, functions, parse, plan};

const NULL: f64 = f64::NAN;
const START: i64 = 1_615_737_710;

/// The series of a path: names and values, at a step of a second by default.
type Found<'a> = &'a [(&'a str, &'a [(&'a str, &'a [f64])])];

fn answer_at(step: i64, target: &str, found: Found) -> Result<Vec<Series>, Error> {
    let targets = [parse(target)?];
    let context = Context::new(START + 600, START, START + 600);
    let mut data = Data::new();
    let mut wanted = plan(&targets, &context, &Budget::unlimited())?;
    for _ in 0..5 {
        for fetch in wanted.series {
            let Fetch { path, .. } = &fetch;
            let of_path = found.iter().find(|(known, _)| *known == &**path).map_or(&[][..], |(_, series)| series);
            let series = of_path
                .iter()
                .map(|(name, values)| Series::fetched(name, path.clone(), START, step, values.to_vec()))
                .collect();
            data.put(fetch, series);
        }
        for fetch in wanted.events {
            data.put_events(fetch, Vec::new());
        }
        match evaluate(&targets, &context, &data, &Budget::unlimited())? {
            Evaluation::Done(series) => return Ok(series),
            Evaluation::Fetch(more) => wanted = more,
        }
    }
    panic!("{target}: no answer after five rounds");
}

fn answer(target: &str, found: Found) -> Vec<Series> {
    answer_at(1, target, found).expect(target)
}

#[track_caller]
fn check(series: &[Series], expected: &[(&str, &[f64])]) {
    let names: Vec<&str> = series.iter().map(|series| &*series.name).collect();
    assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (series, (name, values)) in series.iter().zip(expected) {
        let near = |(a, b): (&f64, &f64)| (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-9;
        let same = series.values.len() == values.len() && series.values.iter().zip(*values).all(near);
        assert!(same, "{name} is {:?}, not {values:?}", series.values);
    }
}

fn names(series: &[Series]) -> Vec<String> {
    let mut names: Vec<String> = series.iter().map(|series| series.name.to_string()).collect();
    names.sort();
    names
}

/// aliasByBase64, TestAlias and BenchmarkAliasByMetric.
#[test]
fn a_name_in_base64_is_decoded_whole_or_by_node() {
    let values: &[f64] = &[1.0, 2.0, 3.0];
    let whole = answer("aliasByBase64(bWV0cmljLm5hbWU=)", &[("bWV0cmljLm5hbWU=", &[("bWV0cmljLm5hbWU=", values)])]);
    check(&whole, &[("metric.name", values)]);
    let node = answer("aliasByBase64(metric.x, 2)", &[("metric.x", &[("metric.bmFtZQ==", values)])]);
    check(&node, &[("metric.name", values)]);
    for kept in ["a.b", "a===", "====", "é", "/w=="] {
        check(&answer("aliasByBase64(x)", &[("x", &[(kept, values)])]), &[(kept, values)]);
        check(&answer("aliasByBase64(x,9)", &[("x", &[(kept, values)])]), &[(kept, values)]);
    }
}

/// countValues, TestCountValues.
#[test]
fn values_are_counted_up_to_a_limit() {
    let found: Found = &[(
        "m.*",
        &[
            ("m.1", &[1.0, 2.0, 3.0, 4.0, 5.0]),
            ("m.2", &[2.0, 2.0, 4.0, 5.0, 6.0]),
            ("m.3", &[NULL, 1.0, 1.0, 1.0, 1.0]),
        ],
    )];
    let counts: &[(&str, &[f64])] = &[
        ("1", &[1.0, 1.0, 1.0, 1.0, 1.0]),
        ("2", &[1.0, 2.0, 0.0, 0.0, 0.0]),
        ("3", &[0.0, 0.0, 1.0, 0.0, 0.0]),
        ("4", &[0.0, 0.0, 1.0, 1.0, 0.0]),
        ("5", &[0.0, 0.0, 0.0, 1.0, 1.0]),
        ("6", &[0.0, 0.0, 0.0, 0.0, 1.0]),
    ];
    for target in ["countValues(m.*)", "countValues(m.*, 7)", "countValues(m.*,valuesLimit=6)"] {
        check(&answer(target, found), counts);
    }
    check(&answer("countValues(m.*, 5)", found), &[("valuesLimitReached", &[0.0; 5])]);
}

/// ewma, TestEWMA.
#[test]
fn a_mean_forgets_by_alpha() {
    let found: Found = &[("m", &[("m", &[0.0, 1.0, 1.0, 1.0, NULL, 1.0, 1.0])])];
    for function in ["ewma", "exponentialWeightedMovingAverage"] {
        let averaged = answer(&format!("{function}(m,0.9)"), found);
        check(&averaged, &[("ewma(m,0.9)", &[0.0, 0.9, 0.99, 0.999, NULL, 0.9999, 0.99999])]);
    }
}

/// heatMap, TestHeatMap.
#[test]
fn a_heat_map_takes_from_each_what_the_one_before_counts() {
    let found: Found = &[(
        "a.*",
        &[
            ("a.a1", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            ("a.a2", &[2.0, NULL, 20.0, 8.0, 10.0, 7.0]),
            ("a.a3", &[10.0, NULL, 3.0, 17.0, 10.0, 90.0]),
        ],
    )];
    check(
        &answer("heatMap(a.*)", found),
        &[
            ("heatMap(a.a2,a.a1)", &[1.0, NULL, 17.0, 4.0, 5.0, 1.0]),
            ("heatMap(a.a3,a.a2)", &[8.0, NULL, -17.0, 9.0, 0.0, 83.0]),
        ],
    );
}

/// highestLowest, TestHighestMultiReturn; the lowest by the same tables.
#[test]
fn series_are_chosen_by_extremes_that_graphite_web_does_not_choose_by() {
    let found: Found = &[(
        "m",
        &[
            ("a", &[6.0, 1.0, 3.0, 3.0, 4.0, 12.0]),
            ("b", &[2.0, 5.0, 5.0, 5.0, 5.0, 5.0]),
            ("c", &[3.0, 2.0, 3.0, 3.0, 4.0, 10.0]),
        ],
    )];
    assert_eq!(names(&answer("highestMin(m, 2)", found)), ["b", "c"]);
    assert_eq!(names(&answer("lowestMin(m, 1)", found)), ["a"]);
    assert_eq!(names(&answer("lowestMax(m, 2)", found)), ["b", "c"]);
}

/// integralWithReset, TestIntegralWithReset and TestIntegralWithResetMultiReturn.
#[test]
fn a_sum_begins_again_where_another_series_says() {
    let found: Found = &[
        ("m", &[("m1", &[1.0, 1.0, 3.0, 5.0, 8.0, 13.0, 21.0]), ("m2", &[1.0; 7])]),
        ("r", &[("r", &[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0])]),
        ("n", &[("n", &[1.0, NULL, NULL, 3.0, 4.0, 12.0, 15.0])]),
        ("s", &[("s", &[0.0, NULL, 0.0, NULL, 0.0, 6.0, 0.0])]),
    ];
    check(
        &answer("integralWithReset(m, r)", found),
        &[
            ("integralWithReset(m1,r)", &[1.0, 2.0, 5.0, 0.0, 0.0, 13.0, 34.0]),
            ("integralWithReset(m2,r)", &[1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 2.0]),
        ],
    );
    check(
        &answer("integralWithReset(n, s)", found),
        &[("integralWithReset(n,s)", &[1.0, NULL, NULL, 4.0, 8.0, 0.0, 15.0])],
    );
    let message = answer_at(1, "integralWithReset(n,m)", found).expect_err("two series").to_string();
    assert_eq!(message, "integralWithReset: resettingSeries must be one series, got 2");
}

/// isNotNull, TestFunction; logarithm and toLowerCase, TestFunction.
#[test]
fn other_names_mean_the_same() {
    let found: Found = &[("m", &[("Metric", &[NULL, -1.0, 10.0, 100.0])])];
    check(&answer("isNotNull(m)", found), &[("isNonNull(Metric)", &[0.0, 1.0, 1.0, 1.0])]);
    check(&answer("logarithm(m)", found), &[("log(Metric, 10)", &[NULL, NULL, 1.0, 2.0])]);
    assert_eq!(names(&answer("toLowerCase(m)", found)), ["metric"]);
    assert_eq!(names(&answer("toUpperCase(m,1,2)", found)), ["METric"]);
}

/// join, TestFunction.
#[test]
fn lists_are_joined_by_name() {
    let (one, two): (&[f64], &[f64]) = (&[NULL, -1.0], &[1.0, 2.0]);
    let found: Found = &[("a", &[("m1", one), ("m3", one)]), ("b", &[("m2", two), ("m3", two)])];
    assert_eq!(names(&answer("join(a, b)", found)), ["m3"]);
    assert_eq!(names(&answer("join(a, b, 'AND')", found)), ["m3"]);
    assert_eq!(names(&answer("join(a, b, 'OR')", found)), ["m1", "m2", "m3"]);
    assert_eq!(names(&answer("join(a, b, type='xor')", found)), ["m1", "m2"]);
    assert_eq!(names(&answer("join(a, b, 'SUB')", found)), ["m1"]);
    let message = answer_at(1, "join(a,b,'NOR')", found).expect_err("no such join").to_string();
    assert_eq!(message, "join: type must be one of 'AND', 'OR', 'SUB', 'XOR', got 'NOR'");
}

/// lowPass, TestLowPass.
#[test]
fn low_frequencies_are_at_both_ends() {
    let found: Found = &[("m", &[("m", &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])])];
    let cut: &[f64] = &[0.0, 1.0, NULL, NULL, NULL, NULL, NULL, NULL, 8.0, 9.0];
    check(&answer("lowPass(m,40)", found), &[("lowPass(m,40)", cut)]);
    check(&answer("lpf(m,40)", found), &[("lowPass(m,40)", cut)]);
}

/// carbonapi has no test of these: its code's transform of a constant, an impulse and back.
#[test]
fn a_transform_there_and_back_is_the_series() {
    let found: Found =
        &[("c", &[("c", &[2.0; 6])]), ("i", &[("i", &[0.0, 3.0, 0.0])]), ("n", &[("n", &[1.0, NULL, 2.0, 4.0, 0.5])])];
    check(
        &answer("fft(c)", found),
        &[
            ("fft(c,abs)", &[12.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            ("fft(c,phase)", &answer("fft(c,'phase')", found)[0].values),
        ],
    );
    check(&answer("fft(i,'abs')", found), &[("fft(i,abs)", &[3.0, 3.0, 3.0])]);
    let back = answer("ifft(fft(n,'abs'),fft(n,'phase'))", found);
    check(&back, &[("ifft(fft(n,abs),fft(n,phase))", &[1.0, 0.0, 2.0, 4.0, 0.5])]);
}

/// pearson, TestFunction.
#[test]
fn two_series_correlate_by_pearson() {
    let found: Found = &[
        ("a", &[("a", &[43.0, 21.0, 25.0, 42.0, 57.0, 59.0])]),
        ("b", &[("b", &[99.0, 65.0, 79.0, 75.0, 87.0, 81.0])]),
        ("both", &[("a", &[1.0]), ("b", &[1.0])]),
    ];
    check(&answer("pearson(a,b,6)", found), &[("pearson(a,b,6)", &[NULL, NULL, NULL, NULL, NULL, 0.5298089018901744])]);
    let message = answer_at(1, "pearson(a,both,6)", found).expect_err("two series").to_string();
    assert_eq!(message, "pearson: both lists must be one series, got 1 and 2");
    let message = answer_at(1, "pearson(a,b,0)", found).expect_err("no window").to_string();
    assert_eq!(message, "pearson: windowSize must be at least 1, got 0");
}

/// pearsonClosest, TestFunction and TestFunctionMultiReturn.
#[test]
fn the_closest_series_are_found() {
    let found: Found = &[
        ("x", &[("x", &[3.0, 4.0, 5.0, 6.0, 7.0, 8.0])]),
        ("y", &[("a", &[0.0; 6]), ("b", &[3.0, NULL, 5.0, 6.0, 7.0, 8.0]), ("c", &[4.0, 4.0, 5.0, 5.0, 6.0, 6.0])]),
        ("c", &[("c", &[4.0, 4.0, 5.0, 5.0, 6.0, 6.0])]),
        (
            "m",
            &[
                ("a", &[0.0; 6]),
                ("b", &[3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
                ("c", &[4.0, 4.0, 5.0, 5.0, 6.0, 6.0]),
                ("d", &[4.0, 4.0, 5.0, 5.0, 6.0, 6.0]),
                ("e", &[4.0, 7.0, 7.0, 7.0, 7.0, 1.0]),
            ],
        ),
    ];
    assert_eq!(names(&answer("pearsonClosest(x,y,1,direction=\"abs\")", found)), ["b"]);
    assert_eq!(names(&answer("pearsonClosest(c,m,2)", found)), ["c", "d"]);
    assert_eq!(names(&answer("pearsonClosest(c,m,3)", found)), ["b", "c", "d"]);
    assert_eq!(names(&answer("pearsonClosest(c,m,9,'neg')", found)), ["e"]);
}

/// carbonapi has no test of this: the probability is the sum over k of 2 (-1)^(k-1) exp(-2 k² z²), z² being 5/2 here.
#[test]
fn samples_of_one_distribution_differ_from_others() {
    let found: Found = &[
        ("a", &[("a", &[9.0, 1.0, 2.0, 3.0, 4.0, 5.0])]),
        ("b", &[("b", &[9.0, 1.0, 2.0, 3.0, 4.0, 5.0])]),
        ("far", &[("far", &[9.0, 11.0, 12.0, 13.0, 14.0, 15.0])]),
        ("null", &[("null", &[NULL; 6])]),
    ];
    let last = |target: &str| *answer(target, found)[0].values.last().expect("a value");
    assert_eq!(last("ksTest2(a,b,5)"), 1.0);
    assert!((last("kolmogorovSmirnovTest2(a,far,5)") - 0.013475889875863676).abs() < 1e-9);
    assert!(last("ksTest2(a,null,5)").is_nan());
    assert_eq!(names(&answer("ksTest2(a,b,5)", found)), ["kolmogorovSmirnovTest2(a,b,5)"]);
}

/// polyfit, TestFunction.
#[test]
fn a_polynomial_follows_the_values_and_goes_on() {
    let values: &[f64] = &[7.79, 7.7, 7.92, 5.25, 6.24, 7.25, 7.15, 8.56, 7.82, 8.52];
    let found: Found = &[
        ("null", &[("null", &[NULL; 5])]),
        ("m", &[("m", values)]),
        ("gap", &[("gap", &[7.79, 7.7, 7.92, 5.25, 6.24, NULL, 7.15, 8.56, 7.82, 8.52])]),
    ];
    check(&answer("polyfit(null,3)", found), &[("polyfit(null,3)", &[NULL; 5])]);
    let near = |target: &str, name: &str, expected: &[f64]| {
        let curve = answer(target, found);
        assert_eq!((&*curve[0].name, curve[0].values.len()), (name, expected.len()));
        for (a, b) in curve[0].values.iter().zip(expected) {
            assert!((a - b).abs() < 1e-10, "{target}: {a} is not {b}");
        }
        assert_eq!(curve[0].end, START + expected.len() as i64);
    };
    let line = [
        6.94763636364,
        7.05260606061,
        7.15757575758,
        7.26254545455,
        7.36751515152,
        7.47248484848,
        7.57745454545,
        7.68242424242,
        7.78739393939,
        7.89236363636,
    ];
    near("polyfit(m)", "polyfit(m)", &line);
    let parabola = [
        7.9733096590909085,
        7.364842329545457,
        6.933910511363642,
        6.680514204545464,
        6.604653409090922,
        6.706328125000017,
        6.985538352272748,
        7.442284090909116,
        8.07656534090912,
        8.888382102272761,
    ];
    near("polyfit(gap,2)", "polyfit(gap,2)", &parabola);
    let cubic = [
        8.22944055944,
        7.26958041958,
        6.73364801865,
        6.54653846154,
        6.63314685315,
        6.91836829837,
        7.3270979021,
        7.78423076923,
        8.21466200466,
        8.54328671329,
        8.695,
        8.5946969697,
        8.16727272727,
        7.33762237762,
        6.03064102564,
    ];
    near("polyfit(m,3,'5sec')", "polyfit(m,3,'5sec')", &cubic);
}

/// removeEmptySeries, TestFunction.
#[test]
fn series_of_zeros_are_left_out() {
    let found: Found = &[
        ("m", &[("a", &[1.0, 2.0, -1.0, 7.0, 8.0, 20.0, 30.0, NULL]), ("b", &[NULL; 8]), ("c", &[0.0; 8])]),
        ("n", &[("a", &[1.0, 2.0, -1.0, -2.3]), ("b", &[1.0, 2.0, -1.0, 0.0])]),
    ];
    let kept = answer("removeZeroSeries(m)", found);
    assert_eq!(names(&kept), ["a"]);
    assert_eq!(kept[0].tags.get("removeZeroSeries"), Some("0"));
    assert_eq!(answer("removeZeroSeries(m,0.000001)", found)[0].tags.get("removeZeroSeries"), Some("0.000001"));
    assert_eq!(names(&answer("removeZeroSeries(m,0.8)", found)), ["a"]);
    assert_eq!(names(&answer("removeZeroSeries(n,1)", found)), ["a"]);
    assert_eq!(names(&answer("removeZeroSeries(nothing,0.5)", found)), Vec::<String>::new());
}

/// carbonapi has no test of this: its code scales from the time given on, under the name of scale.
#[test]
fn values_are_scaled_from_a_time_on() {
    let found: Found = &[("m", &[("m", &[1.0, 2.0, 3.0])])];
    let target = format!("scaleAfterTimestamp(m,10,{})", START + 1);
    check(&answer(&target, found), &[(&format!("scale(m,10,{})", START + 1), &[1.0, 20.0, 30.0])]);
    check(&answer("scaleAfterTimestamp(m,10)", found), &[("scale(m,10)", &[10.0, 20.0, 30.0])]);
}

/// slo, TestSlo and TestSloErrorBudget.
#[test]
fn objectives_are_measured_per_interval() {
    let found: Found = &[
        ("m", &[("m", &[1.0, 2.0, 3.0, 4.0, 5.0, NULL, NULL, 6.0, 7.0, 0.0, 8.0])]),
        ("n", &[("n", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])]),
        (
            "e",
            &[("e", &[1.0, 1.5, 2.0, 3.0, 4.0, NULL, 0.0, 1.0, 1.5, 2.1, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0])],
        ),
    ];
    let at = |step: i64, target: &str| answer_at(step, target, found).expect(target);
    check(&at(5, "slo(m, \"10sec\", \"above\", 2)"), &[("slo(m, 10sec, above, 2)", &[0.0, 1.0, 1.0, 1.0, 0.5, 1.0])]);
    // An interval shorter than a step tells nothing.
    check(&at(5, "slo(n, '4sec', 'below', 6)"), &[("slo(n, 4sec, below, 6)", &[NULL; 12])]);
    check(
        &at(1, "sloErrorBudget(e, '5sec', 'aboveOrEqual', 2, 0.6)"),
        &[("sloErrorBudget(e, 5sec, aboveOrEqual, 2, 0.6)", &[0.0, -1.75, 1.0, 0.6])],
    );
    check(
        &at(5, "sloErrorBudget(e, '4sec', 'aboveOrEqual', 2, 0.6)"),
        &[("sloErrorBudget(e, 4sec, aboveOrEqual, 2, 0.6)", &[NULL; 24])],
    );
    // An interval longer than the graph looks back for the rest of it.
    let fetches = plan(
        &[parse("slo(m,'1h','above',2)").expect("a target")],
        &Context::new(START, START, START + 600),
        &Budget::unlimited(),
    );
    let spans: Vec<i64> = fetches.expect("a plan").series.iter().map(|fetch| fetch.span.from - START).collect();
    assert_eq!(spans, [0, -3000]);
}

/// timeShiftByMetric, TestTimeShift, TestBadMarks and TestNotEnoughSeries.
#[test]
fn releases_are_moved_to_begin_with_the_newest() {
    let n = NULL;
    let found: Found = &[
        (
            "apps",
            &[
                ("apps.1_3.metric", &[1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, n, n]),
                ("apps.2.metric", &[n, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 2.9, n]),
                ("apps.3.metric", &[n, n, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6, 3.7, 3.8, 3.9]),
            ],
        ),
        (
            "marks",
            &[
                ("apps.mark.1_3", &[n, n, n, 1.0, n, n, n, n, n, n, n]),
                ("apps.mark.2_2", &[n, n, n, n, n, n, 1.0, n, n, n, n]),
                ("apps.mark.3_1", &[n, n, n, n, n, n, n, n, 1.0, n, n]),
                ("apps.mark.1_0", &[1.0, n, n, n, n, n, n, n, n, n, n]),
                ("apps.mark.1_1", &[n, 1.0, n, n, n, n, n, n, n, n, n]),
                ("apps.mark.1_2", &[n, n, 1.0, n, n, n, n, n, n, n, n]),
                ("apps.mark.2_0", &[n, n, n, n, 1.0, n, n, n, n, n, n]),
                ("apps.mark.2_1", &[n, n, n, n, n, 1.0, n, n, n, n, n]),
                ("apps.mark.3_0", &[n, n, n, n, n, n, n, 1.0, n, n, n]),
            ],
        ),
        (
            "one",
            &[
                ("apps.mark.1_0", &[1.0, n, n, n, n, n, n, n, n, n, n]),
                ("apps.mark.1_1", &[n, 1.0, n, n, n, n, n, n, n, n, n]),
            ],
        ),
        ("few", &[("apps.mark.1_0", &[1.0, n, n, n, n, n, n, n, n, n, n])]),
    ];
    let shifted = answer("timeShiftByMetric(apps, marks, 1)", found);
    let starts: Vec<(&str, i64)> = shifted.iter().map(|series| (&*series.name, series.start - START)).collect();
    assert_eq!(
        starts,
        [
            ("timeShiftByMetric(apps.1_3.metric)", 5),
            ("timeShiftByMetric(apps.2.metric)", 2),
            ("timeShiftByMetric(apps.3.metric)", 0)
        ]
    );
    for (marks, problem) in [
        ("one", "markSource must tell where two major versions begin, by names that end in such as 2_13; 1 is there"),
        ("few", "markSource must be at least two series, got 1"),
    ] {
        let message =
            answer_at(1, &format!("timeShiftByMetric(apps, {marks}, 1)"), found).expect_err(marks).to_string();
        assert_eq!(message, format!("timeShiftByMetric: {problem}"));
    }
}

/// tukey, TestFunctionMultiReturn.
#[test]
fn outliers_are_found_by_quartiles() {
    let short: &[(&str, &[f64])] = &[
        ("a", &[21.0, 17.0, 20.0, 20.0, 10.0, 29.0]),
        ("b", &[20.0, 18.0, 21.0, 19.0, 20.0, 20.0]),
        ("c", &[19.0, 19.0, 21.0, 17.0, 23.0, 20.0]),
        ("d", &[18.0, 20.0, 22.0, 14.0, 26.0, 20.0]),
        ("e", &[17.0, 21.0, 8.0, 30.0, 18.0, 28.0]),
    ];
    let with = |before: usize, after: usize| -> Vec<(&str, Vec<f64>)> {
        let wide = |values: &[f64]| [vec![20.0; before], values.to_vec(), vec![20.0; after]].concat();
        short.iter().map(|(name, values)| (*name, wide(values))).collect()
    };
    let (late, early) = (with(4, 0), with(0, 4));
    let late: Vec<(&str, &[f64])> = late.iter().map(|(name, values)| (*name, values.as_slice())).collect();
    let early: Vec<(&str, &[f64])> = early.iter().map(|(name, values)| (*name, values.as_slice())).collect();
    let found: Found = &[("m", short), ("late", &late), ("early", &early)];
    for (target, expected) in [
        ("tukeyAbove(m,1.5,5)", &["a", "d", "e"][..]),
        ("tukeyAbove(m, 3, 5)", &["e"]),
        ("tukeyAbove(late, 1.5, 5, 6)", &["a", "d", "e"]),
        ("tukeyAbove(late,1.5,5,\"6s\")", &["a", "d", "e"]),
        ("tukeyBelow(m,1.5,5)", &["a", "e"]),
        ("tukeyBelow(early,1.5,5,-4)", &["a", "e"]),
        ("tukeyBelow(early,1.5,5,\"-4s\")", &["a", "e"]),
        ("tukeyBelow(m,3,5)", &["e"]),
    ] {
        assert_eq!(names(&answer(target, found)), expected, "{target}");
    }
}

/// seriesList, whose tests have the other functions of this kind: pairs by place, by name, one for all, and a default.
#[test]
fn powers_are_taken_pair_by_pair() {
    let found: Found = &[
        ("m", &[("a", &[2.0, 3.0, NULL]), ("b", &[4.0, 5.0, 6.0])]),
        ("n", &[("c", &[1.0, 2.0, 3.0]), ("d", &[0.5, 0.0, -1.0])]),
        ("one", &[("b", &[2.0, 2.0, 2.0])]),
        ("three", &[("b", &[2.0; 3]), ("x", &[1.0; 3]), ("y", &[1.0; 3])]),
    ];
    let (first, second): (&[f64], &[f64]) = (&[2.0, 9.0, NULL], &[2.0, 1.0, 1.0 / 6.0]);
    check(&answer("powSeriesLists(m,n)", found), &[("powSeries(a,c)", first), ("powSeries(b,d)", second)]);
    let squares: &[f64] = &[16.0, 25.0, 36.0];
    check(
        &answer("powSeriesLists(m,one)", found),
        &[("powSeries(a,b)", &[4.0, 9.0, NULL]), ("powSeries(b,b)", squares)],
    );
    check(&answer("powSeriesLists(m,three)", found), &[("powSeries(b,b)", squares)]);
    let cubed: &[f64] = &[8.0, 27.0, NULL];
    check(&answer("powSeriesLists(m,three,3)", found), &[("powSeries(a,3)", cubed), ("powSeries(b,b)", squares)]);
    check(&answer("powSeriesLists(nothing,one,3)", found), &[("powSeries(3,b)", &[9.0; 3])]);
    check(&answer("powSeriesLists(m,nothing)", found), &[]);
}

/// aggregate, TestAggregate: the summarizers by their own names.
#[test]
fn summarizers_are_functions() {
    let found: Found = &[(
        "m",
        &[
            ("a", &[1.0, NULL, 2.0, 3.0, 4.0, 5.0]),
            ("b", &[2.0, NULL, 3.0, NULL, 5.0, 6.0]),
            ("c", &[3.0, NULL, 4.0, 5.0, 6.0, NULL]),
        ],
    )];
    for (function, name, expected) in [
        ("total", "totalSeries(m)", &[6.0, NULL, 9.0, 8.0, 15.0, 11.0][..]),
        ("totalSeries", "totalSeries(m)", &[6.0, NULL, 9.0, 8.0, 15.0, 11.0]),
        ("average", "averageSeries(m)", &[2.0, NULL, 3.0, 4.0, 5.0, 5.5]),
        ("avgSeries", "avgSeries(m)", &[2.0, NULL, 3.0, 4.0, 5.0, 5.5]),
        ("avg_zero", "avg_zeroSeries(m)", &[2.0, NULL, 3.0, 8.0 / 3.0, 5.0, 11.0 / 3.0]),
        ("count", "countSeries(m)", &[3.0, NULL, 3.0, 2.0, 3.0, 2.0]),
        ("currentSeries", "currentSeries(m)", &[3.0, NULL, 4.0, 5.0, 6.0, 6.0]),
        ("diff", "diffSeries(m)", &[-4.0, NULL, -5.0, -2.0, -7.0, -1.0]),
        ("first", "firstSeries(m)", &[1.0, NULL, 2.0, 3.0, 4.0, 5.0]),
        ("last", "lastSeries(m)", &[3.0, NULL, 4.0, 5.0, 6.0, 6.0]),
        ("max", "maxSeries(m)", &[3.0, NULL, 4.0, 5.0, 6.0, 6.0]),
        ("medianSeries", "medianSeries(m)", &[2.0, NULL, 3.0, 4.0, 5.0, 5.5]),
        ("min", "minSeries(m)", &[1.0, NULL, 2.0, 3.0, 4.0, 5.0]),
        ("multiply", "multiplySeries(m)", &[6.0, NULL, 24.0, NULL, 120.0, NULL]),
        ("range", "rangeSeries(m)", &[2.0, NULL, 2.0, 2.0, 2.0, 1.0]),
        ("rangeOf", "rangeOfSeries(m)", &[2.0, NULL, 2.0, 2.0, 2.0, 1.0]),
        (
            "stddev",
            "stddevSeries(m)",
            &[(2.0_f64 / 3.0).sqrt(), NULL, (2.0_f64 / 3.0).sqrt(), 1.0, (2.0_f64 / 3.0).sqrt(), 0.5],
        ),
    ] {
        check(&answer(&format!("{function}(m)"), found), &[(name, expected)]);
    }
}

/// carbonapi has no test of these: its code's median of the same series at other times.
#[test]
fn a_baseline_is_the_median_of_other_times() {
    let found: Found = &[("m", &[("m", &[1.0, 2.0, NULL, 0.0])])];
    let week = answer("baseline(m,'7d',1,4)", found);
    check(&week, &[("baseline(m)", &[1.0, 2.0, NULL, 0.0])]);
    // Three weeks back and brought here: the first of the series looked at is a week old.
    assert_eq!(week[0].start, START + 7 * 86_400);
    check(&answer("baselineAberration(m,'7d',1,4)", found), &[("baselineAberration(m)", &[1.0, 1.0, NULL, 0.0])]);
    check(&answer("baseline(m,'7d',1,4,20)", found), &[]);
    check(&answer("baseline(m,'7d',1,4,30,2)", found), &[]);
    let spans = plan(
        &[parse("baseline(m,'1d',-1,3)").expect("a target")],
        &Context::new(START, START, START + 60),
        &Budget::unlimited(),
    );
    let from: Vec<i64> = spans.expect("a plan").series.iter().map(|fetch| (fetch.span.from - START) / 86_400).collect();
    assert_eq!(from, [1, -1, -2]);
    let message = answer_at(1, "baseline(m,'1s',0,5000)", found).expect_err("many times").to_string();
    assert_eq!(message, "baseline: timeShiftEnd must be at most 1000 after timeShiftStart");
}

#[test]
fn extensions_are_marked() {
    let json = render::function_json("slo", false).expect("a function");
    assert!(json.contains("\"extension\":true"), "{json}");
    let json = render::function_json("scale", false).expect("a function");
    assert!(!json.contains("extension"), "{json}");
    // As callbacks, graphite-web's names are offered and no others.
    assert!(functions::all().filter(|function| function.extension).all(|function| !function.aggregator));
}
