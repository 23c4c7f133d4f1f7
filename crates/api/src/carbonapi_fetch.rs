//! `/render` as carbonapi asks for it in version 3: a `MultiFetchRequest` in the body, names and spans of its own for
//! each of them.
//!
//! 1. Read the message, and put wants of the same span together.
//! 2. Wait for a turn.
//! 3. Read each group's series: [`evaluate`] tells how. What one group cost is taken from what the next may.
//! 4. File each series under the expression that asked for it.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Api, Refusal,
    api::{Query, Reply},
    carbonapi::{Wanted, read_fetches, unreadable},
    carbonapi_series::FetchHead,
    evaluation::{Cost, evaluate},
    formats::{Answer, Format},
    pieces::Coding,
    render_request::{Asked, answered},
    times::Times,
};

/// `/render` with a message in the body.
pub(crate) async fn render(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let wanted = read_fetches(&query.body).map_err(unreadable("MultiFetchRequest"))?;
    let bytes: usize = wanted.iter().map(|wanted| wanted.name.len() + WANT_BYTES).sum();
    api.check_targets(bytes)?;
    let permit = api.turn().await?;
    let now = (api.clock)();
    let (mut all, mut heads, mut cost) = (Vec::new(), Vec::new(), Cost::default());
    for Group { start, stop, expressions, names } in groups(wanted)? {
        let times = Times { now, from: start.min(stop), until: start.max(stop) };
        let asked = Arc::new(Asked::of_paths(api, names, times));
        let evaluated = evaluate(api, &asked, cost).await?;
        cost = evaluated.cost;
        for mut series in evaluated.series {
            if let Some(expression) = expressions.get(&*series.path_expression) {
                series.path_expression = expression.as_str().into();
            }
            heads.push(FetchHead::of(api, &series, start, stop));
            all.push(series);
        }
    }
    let coding = Coding::of(&query.headers);
    let limit = api.limits.response_bytes;
    let written = tokio::task::spawn_blocking(move || {
        answered(Answer::new(Format::CarbonapiV3(heads), all), limit, coding, permit)
    });
    let response = written.await.map_err(|_| Refusal::Broken)??;
    Ok(Reply { response, series: cost.series as u64, points: cost.points as u64 })
}

/// Wants that are read together.
struct Group {
    start: i64,
    stop: i64,
    /// Each once, in the order asked.
    names: Vec<String>,
    /// What a name is filed under.
    expressions: HashMap<String, String>,
}

/// Groups of one request, at most: each is read by itself. carbonapi has one for each span, nearly always.
const MAX_GROUPS: usize = 100;

/// What a want costs beside its name, in bytes of a target: there may be many, of short names.
const WANT_BYTES: usize = 16;

/// Puts wants of the same span together. A name that is wanted under two expressions is in two groups, as it is
/// answered twice.
fn groups(wanted: Vec<Wanted>) -> Result<Vec<Group>, Refusal> {
    let mut groups: Vec<Group> = Vec::new();
    // The places of the groups of a span.
    let mut places: HashMap<(i64, i64), Vec<usize>> = HashMap::new();
    for Wanted { name, path_expression, start, stop } in wanted {
        let of_span = places.entry((start, stop)).or_default();
        let (mut place, mut is_known) = (None, false);
        for &candidate in of_span.iter() {
            match groups[candidate].expressions.get(&name) {
                Some(expression) if *expression == path_expression => is_known = true,
                Some(_) => continue,
                None => place = Some(candidate),
            }
            break;
        }
        if is_known {
            continue;
        }
        let place = place.unwrap_or_else(|| {
            groups.push(Group { start, stop, names: Vec::new(), expressions: HashMap::new() });
            of_span.push(groups.len() - 1);
            groups.len() - 1
        });
        if groups.len() > MAX_GROUPS {
            let text =
                format!("more than {MAX_GROUPS} different spans, or expressions for one name; ask in several requests");
            return Err(Refusal::Request(text));
        }
        groups[place].names.push(name.clone());
        groups[place].expressions.insert(name, path_expression);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_once_for_each_span_and_each_expression() {
        let want = |name: &str, path_expression: &str, start: i64| Wanted {
            name: name.to_owned(),
            path_expression: path_expression.to_owned(),
            start,
            stop: 100,
        };
        let wanted = vec![
            want("a.b", "a.*", 0),
            want("a.c", "a.*", 0),
            want("a.b", "a.b", 0),
            want("a.b", "a.*", 0),
            want("a.b", "a.*", 50),
        ];
        let groups: Vec<_> = groups(wanted).unwrap().into_iter().map(|group| (group.start, group.names)).collect();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(groups, [(0, names(&["a.b", "a.c"])), (0, names(&["a.b"])), (50, names(&["a.b"]))]);
    }
}
