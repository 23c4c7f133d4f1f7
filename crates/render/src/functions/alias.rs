//! Names for the reader. Later names refer to the path expression instead.

use crate::{
    Error,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    python_regex::PythonRegex,
    scope::Scope,
};

const GROUP: &str = "Alias";

/// Steps of work on a name besides its bytes.
const STEPS_PER_NAME: usize = 100;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Alias>("alias", GROUP, "Names every series as given."),
    Function::of::<AliasByMetric>("aliasByMetric", GROUP, "Names each series by the last node of its name."),
    Function::of::<AliasSub>(
        "aliasSub",
        GROUP,
        "Replaces what a regular expression of Python finds in each name; \\1 is its first group.",
    ),
];

parameters! {
    /// alias.
    struct Alias {
        series: SeriesList = "seriesList".required();
        name: String = "newName".required();
    }
}

impl Evaluate for Alias {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            scope.check_after(STEPS_PER_NAME + self.name.len())?;
            series.name = self.name.as_str().into();
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// aliasSub.
    struct AliasSub {
        series: SeriesList = "seriesList".required();
        search: String = "search".required();
        replace: String = "replace".required();
    }
}

impl Evaluate for AliasSub {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        let reject = |scope: &Scope, parameter: &str, problem: String| scope.reject(format!("{parameter} {problem}"));
        let regex = PythonRegex::new(&self.search).map_err(|problem| reject(scope, "search", problem))?;
        let replacement = regex.replacement(&self.replace).map_err(|problem| reject(scope, "replace", problem))?;
        for series in &mut self.series.0 {
            scope.check()?;
            let name = regex.replace(&series.name, &replacement, &|| scope.check().is_err());
            // A cancellation is not the pattern's mistake.
            scope.check()?;
            series.name = name.map_err(|problem| reject(scope, "search", problem))?.into();
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// aliasByMetric.
    struct AliasByMetric {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for AliasByMetric {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            scope.check_after(STEPS_PER_NAME + 4 * series.name.len())?;
            series.name = last_node(&series.name).into();
        }
        Ok(self.series.0.into())
    }
}

/// The last node of the text inside the innermost left and the first right bracket, up to its first comma.
fn last_node(name: &str) -> &str {
    let left = name.rfind('(').map_or(0, |at| at + 1);
    let right = name.find(')').unwrap_or(name.len());
    let clean = name.get(left..right).unwrap_or_default();
    let node = clean.rsplit('.').next().unwrap_or_default();
    // The comma goes last: a dot behind it counts.
    node.split(',').next().unwrap_or_default()
}
