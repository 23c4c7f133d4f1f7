//! The options of a graph: the parameters of graphite-web's `Graph`, `LineGraph` and `PieGraph`, parsed.
//!
//! A value that graphite-web ignores is ignored; one on which its drawing fails is rejected.

use crate::{Error, color::Color, template::Template};

/// Pixels of the largest picture: for a wall of monitors, 40 MB of memory while it is drawn.
pub const MAX_PIXELS: u32 = 10_000_000;

/// The options of a graph. Each has a default; [`Options::read`] takes the parameters of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Pixels across.
    pub(crate) width: u32,
    /// Pixels down.
    pub(crate) height: u32,
    /// The margin of the picture, pixels, where the request has one.
    pub(crate) margin: Option<f32>,
    pub(crate) font: Font,
    pub(crate) look: Look,
    pub(crate) title: Option<String>,
    pub(crate) legend: Legend,
    /// The opacity of areas.
    pub(crate) area_alpha: Option<f32>,
    pub(crate) line: LineOptions,
    pub(crate) pie: PieOptions,
}

/// How text is set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Font {
    /// The face of SVG text, where the viewer has it; PNG always has the built-in face.
    pub name: Option<String>,
    /// Pixels.
    pub size: f32,
    pub bold: bool,
    pub italic: bool,
}

/// Colours of the picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Look {
    pub background: Color,
    pub foreground: Color,
    pub major_line: Color,
    pub minor_line: Color,
    /// Taken in turn by series without a colour of their own. Never empty.
    pub lines: Vec<Color>,
}

/// The legend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Legend {
    /// Whether the legend is hidden; `None` leaves it to the number of series.
    pub hidden: Option<bool>,
    /// Whether each name is listed once, however many series have it.
    pub unique: bool,
    /// Whether series without values are left out.
    pub without_null: bool,
}

/// Options of graphs over time alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineOptions {
    pub line_mode: LineMode,
    /// Values that may be missing within a connected line.
    pub connected_limit: f64,
    pub line_width: f32,
    pub area_mode: AreaMode,
    pub null_as_zero: bool,
    /// Pixels between values, at the least; more values are folded.
    pub min_x_step: f64,
    /// The title of the left axis.
    pub title_left: Option<String>,
    /// The title of the right axis, where there is one.
    pub title_right: Option<String>,
    pub graph_only: bool,
    pub hide_axes: bool,
    pub hide_x_axis: bool,
    pub hide_y_axis: bool,
    pub hide_grid: bool,
    /// Minor lines between two major ones.
    pub minor_lines: u32,
    /// The format of times, for strftime.
    pub time_form: Option<String>,
    /// Whether a single value axis is on the right.
    pub labels_right: bool,
    pub units: Units,
    /// The allowed numbers of steps of a value axis.
    pub divisors: Vec<u32>,
    pub log_base: Option<f64>,
    /// The only axis.
    pub axis: AxisOptions,
    /// The left axis of two.
    pub left: AxisOptions,
    /// The right axis of two.
    pub right: AxisOptions,
}

/// How values become a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineMode {
    Slope,
    Staircase,
    Connected,
}

/// Which lines are filled down to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AreaMode {
    None,
    First,
    All,
    /// All, each on top of those before it.
    Stacked,
}

/// Units of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Units {
    Si,
    Binary,
    Seconds,
    Milliseconds,
    None,
}

/// A value axis, and how the lines that belong to it are drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct AxisOptions {
    pub min: Option<f64>,
    pub max: Option<Top>,
    /// The top of the axis, at most.
    pub limit: Option<f64>,
    /// The distance from a label to the next; above zero.
    pub step: Option<f64>,
    pub line_width: Option<f32>,
    pub color: Option<Color>,
    /// Pixels of a dash.
    pub dashed: Option<f32>,
}

/// Where an axis ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Top {
    /// At the largest value, though that is not a round number.
    OfData,
    At(f64),
}

/// Options of pies alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PieOptions {
    pub labels: PieLabels,
    /// The smallest value, or share in percent, with a label on its slice.
    pub labels_min: f64,
    pub labels_color: Color,
    pub rotated: bool,
}

/// The labels of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieLabels {
    None,
    Number,
    Percent,
}

/// Pixels of a dash where a parameter only turns dashes on: the default of `dashed()`.
const DASH: f32 = 5.0;

/// The text of a parameter as graphite-web cleans it: an empty text and `default` count as not given.
struct Values<'v, 'a>(&'v dyn Fn(&str) -> Option<&'a str>);

impl<'a> Values<'_, 'a> {
    fn text(&self, name: &'static str) -> Option<&'a str> {
        (self.0)(name).filter(|text| !text.is_empty() && !text.eq_ignore_ascii_case("default"))
    }

    /// True as in Python: any text but `false` and zero.
    fn flag(&self, name: &'static str) -> Option<bool> {
        let text = self.text(name)?;
        let truth = match text.to_ascii_lowercase().as_str() {
            "true" => true,
            "false" => false,
            other => other.parse::<f64>() != Ok(0.0),
        };
        Some(truth)
    }

    fn is_set(&self, name: &'static str) -> bool {
        self.flag(name).unwrap_or(false)
    }

    fn number(&self, name: &'static str) -> Result<Option<f64>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number: Result<f64, _> = text.trim().parse();
        match number {
            Ok(number) if number.is_finite() => Ok(Some(number.clamp(-1e300, 1e300))),
            // No limit.
            Ok(number) if number.is_nan() || name.starts_with("yLimit") => Ok(None),
            _ => Err(Error::option(name, text, "a number")),
        }
    }

    /// A number from `min` to `max`, cut to a whole one where `whole`.
    fn between(&self, name: &'static str, min: f64, max: f64) -> Result<Option<f64>, Error> {
        let number = self.number(name)?;
        match number {
            Some(number) if !(min <= number && number <= max) => {
                let given = self.text(name).unwrap_or_default();
                Err(Error::option(name, given, &format!("a number from {min} to {max}")))
            }
            other => Ok(other),
        }
    }

    fn color(&self, name: &'static str) -> Result<Option<Color>, Error> {
        self.text(name).map(|text| Color::read(name, text)).transpose()
    }

    /// Text that graphite-web decodes once more than the request was.
    fn title(&self, name: &'static str) -> Option<String> {
        self.text(name).map(percent_decoded)
    }

    fn one_of<T: Copy>(&self, name: &'static str, default: T, choices: &[(&str, T)]) -> Result<T, Error> {
        let Some(text) = self.text(name) else { return Ok(default) };
        match choices.iter().find(|(choice, _)| choice.eq_ignore_ascii_case(text)) {
            Some((_, value)) => Ok(*value),
            None => {
                let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
                Err(Error::option(name, text, &format!("one of {}", names.join(", "))))
            }
        }
    }

    /// Pixels of a dash: a number, or the default where dashes are only turned on.
    fn dash(&self, name: &'static str) -> Result<Option<f32>, Error> {
        match self.text(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false") => Ok(None),
            Some("true") => Ok(Some(DASH)),
            Some(_) => Ok(self.between(name, 0.0, 1000.0)?.filter(|dash| *dash > 0.0).map(|dash| dash as f32)),
        }
    }

    fn axis(&self, names: [&'static str; 7]) -> Result<AxisOptions, Error> {
        let [min, max, limit, step, width, color, dashed] = names;
        let top = match self.text(max) {
            Some("max") => Some(Top::OfData),
            _ => self.number(max)?.map(Top::At),
        };
        let step_given = self.number(step)?;
        if step_given.is_some_and(|step| step <= 0.0) {
            return Err(Error::option(step, self.text(step).unwrap_or_default(), "a number above 0"));
        }
        Ok(AxisOptions {
            min: self.number(min)?,
            max: top,
            limit: self.number(limit)?,
            step: step_given,
            line_width: self.between(width, 0.0, 1000.0)?.map(|width| width as f32),
            color: self.color(color)?,
            dashed: self.dash(dashed)?,
        })
    }
}

impl Options {
    /// Width and height, pixels.
    pub fn size(&self) -> (usize, usize) {
        (self.width as usize, self.height as usize)
    }

    /// Reads the parameters of a request: `value` gives the last value of a name. Never asks
    /// for an unknown name. The error names the invalid parameter and what is valid.
    pub fn read<'a>(value: &dyn Fn(&str) -> Option<&'a str>) -> Result<Options, Error> {
        let values = Values(value);
        let side = |name, default| Ok(values.between(name, 1.0, 100_000.0)?.unwrap_or(default) as u32);
        let (width, height) = (side("width", 330.0)?, side("height", 250.0)?);
        if u64::from(width) * u64::from(height) > u64::from(MAX_PIXELS) {
            return Err(Error::TooLarge { width, height, limit: MAX_PIXELS });
        }
        Ok(Options {
            width,
            height,
            // graphite-web's own margin takes the place of a negative one.
            margin: values.number("margin")?.filter(|margin| 0.0 <= *margin).map(|margin| margin.min(1e5) as f32),
            font: Font {
                name: values.text("fontName").map(str::to_owned),
                size: values.between("fontSize", 1.0, 200.0)?.map_or(10.0, |size| size.trunc() as f32),
                bold: values.is_set("fontBold"),
                italic: values.is_set("fontItalic"),
            },
            look: Look::read(&values)?,
            title: values.title("title"),
            legend: Legend {
                hidden: values.flag("hideLegend"),
                unique: values.is_set("uniqueLegend"),
                without_null: values.is_set("hideNullFromLegend"),
            },
            area_alpha: area_alpha(&values),
            line: LineOptions::read(&values)?,
            pie: PieOptions::read(&values)?,
        })
    }
}

/// `areaAlpha`: zero counts as not given, as in Python, and a text that is not a number as a half.
fn area_alpha(values: &Values<'_, '_>) -> Option<f32> {
    let text = values.text("areaAlpha")?;
    match text.trim().parse::<f32>() {
        Ok(alpha) if alpha.is_finite() => (alpha != 0.0).then(|| alpha.clamp(0.0, 1.0)),
        _ if text.eq_ignore_ascii_case("true") => Some(1.0),
        _ if text.eq_ignore_ascii_case("false") => None,
        _ => Some(0.5),
    }
}

impl Look {
    fn read(values: &Values<'_, '_>) -> Result<Look, Error> {
        let template = Template::named(values.text("template").unwrap_or("default"));
        let background = values.color("bgcolor")?.unwrap_or(template.background);
        let foreground = match values.color("fgcolor")? {
            Some(color) => color,
            // A ground chosen without its text would often hide it.
            None if template.foreground.is_legible_on(background) => template.foreground,
            None => background.contrary(),
        };
        let list = values.text("colorList").map(percent_decoded);
        let texts = list.iter().flat_map(|list| list.split(',')).filter(|text| !text.trim().is_empty());
        let lines = texts.map(|text| Color::read("colorList", text)).collect::<Result<Vec<_>, _>>()?;
        Ok(Look {
            background,
            foreground,
            major_line: values.color("majorGridLineColor")?.unwrap_or(template.major_line),
            minor_line: values.color("minorGridLineColor")?.unwrap_or(template.minor_line),
            lines: if lines.is_empty() { template.lines } else { lines },
        })
    }
}

impl LineOptions {
    fn read(values: &Values<'_, '_>) -> Result<LineOptions, Error> {
        let line_modes =
            [("slope", LineMode::Slope), ("staircase", LineMode::Staircase), ("connected", LineMode::Connected)];
        let area_modes = [
            ("none", AreaMode::None),
            ("first", AreaMode::First),
            ("all", AreaMode::All),
            ("stacked", AreaMode::Stacked),
        ];
        let mut axis = values.axis(["yMin", "yMax", "yLimit", "yStep", "lineWidth", "", ""])?;
        // `min` and `max` are older names.
        axis.min = if values.text("yMin").is_some() { axis.min } else { values.number("min")? };
        axis.max = if values.text("yMax").is_some() { axis.max } else { values.number("max")?.map(Top::At) };
        let width = if values.text("lineWidth").is_some() { "lineWidth" } else { "thickness" };
        let log_base = match values.text("logBase") {
            Some("e") => Some(std::f64::consts::E),
            _ => values.number("logBase")?.filter(|base| *base >= 1.0),
        };
        if log_base == Some(1.0) {
            return Err(Error::option("logBase", "1", "e or a number above 1"));
        }
        let minor_lines = values.between("minorY", -1e9, 100.0)?.unwrap_or(1.0);
        let time_form = values.text("xFormat");
        if let Some(form) = time_form.filter(|form| form.len() > 200) {
            return Err(Error::option("xFormat", form, "at most 200 bytes"));
        }
        Ok(LineOptions {
            line_mode: values.one_of("lineMode", LineMode::Slope, &line_modes)?,
            connected_limit: values.number("connectedLimit")?.unwrap_or(f64::INFINITY),
            line_width: values.between(width, 0.0, 1000.0)?.unwrap_or(1.2) as f32,
            area_mode: values.one_of("areaMode", AreaMode::None, &area_modes)?,
            null_as_zero: values.is_set("drawNullAsZero"),
            min_x_step: values.number("minXStep")?.unwrap_or(1.0),
            title_left: values.title("vtitle"),
            title_right: values.title("vtitleRight"),
            graph_only: values.is_set("graphOnly"),
            hide_axes: values.is_set("hideAxes"),
            hide_x_axis: values.is_set("hideXAxis"),
            hide_y_axis: values.is_set("hideYAxis"),
            hide_grid: values.is_set("hideGrid"),
            minor_lines: minor_lines.max(0.0) as u32,
            time_form: time_form.map(str::to_owned),
            labels_right: values.one_of("yAxisSide", false, &[("left", false), ("right", true)])?,
            units: Units::named(values.text("yUnitSystem").unwrap_or("si")),
            divisors: divisors(values)?,
            log_base,
            axis,
            left: values.axis([
                "yMinLeft",
                "yMaxLeft",
                "yLimitLeft",
                "yStepLeft",
                "leftWidth",
                "leftColor",
                "leftDashed",
            ])?,
            right: values.axis([
                "yMinRight",
                "yMaxRight",
                "yLimitRight",
                "yStepRight",
                "rightWidth",
                "rightColor",
                "rightDashed",
            ])?,
        })
    }
}

/// `yDivisors`: whole numbers from 1 with commas between.
fn divisors(values: &Values<'_, '_>) -> Result<Vec<u32>, Error> {
    let Some(text) = values.text("yDivisors") else { return Ok(vec![4, 5, 6]) };
    let number = |text: &str| text.trim().parse().ok().filter(|divisor| (1..=1000).contains(divisor));
    let divisors: Option<Vec<u32>> = text.split(',').map(number).collect();
    let expected = "at most 100 whole numbers from 1 to 1000 with commas between, such as 4,5,6";
    divisors.filter(|divisors| divisors.len() <= 100).ok_or_else(|| Error::option("yDivisors", text, expected))
}

impl Units {
    /// The unit system of a name; `si` for an unknown name, as in graphite-web.
    fn named(name: &str) -> Units {
        match name.to_ascii_lowercase().as_str() {
            "binary" => Units::Binary,
            "sec" => Units::Seconds,
            "msec" => Units::Milliseconds,
            "none" => Units::None,
            _ => Units::Si,
        }
    }
}

impl PieOptions {
    fn read(values: &Values<'_, '_>) -> Result<PieOptions, Error> {
        let labels = [("none", PieLabels::None), ("number", PieLabels::Number), ("percent", PieLabels::Percent)];
        Ok(PieOptions {
            labels: values.one_of("valueLabels", PieLabels::Percent, &labels)?,
            labels_min: values.number("valueLabelsMin")?.unwrap_or(5.0),
            labels_color: values.color("valueLabelsColor")?.unwrap_or(Color::BLACK),
            rotated: values.text("pieLabels") == Some("rotated"),
        })
    }
}

/// `%41` as `A`. A `+` stays: the request was decoded already, so the client meant a plus sign.
pub(crate) fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Options, String> {
        let pairs: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let value = |name: &str| pairs.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value);
        Options::read(&value).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_read_as_graphite_web_reads_them() {
        assert_eq!(read("width=&height=default"), read(""));
        assert_eq!(read("width=400.7").map(|options| options.width), Ok(400));
        assert_eq!(read("margin=-3").map(|options| options.margin), Ok(None));
        for (text, hidden) in
            [("true", true), ("False", false), ("0", false), ("0.0", false), ("1", true), ("no", true)]
        {
            assert_eq!(read(&format!("hideLegend={text}")).map(|options| options.legend.hidden), Ok(Some(hidden)));
        }
        for (text, alpha) in [("0.3", Some(0.3)), ("0", None), ("half", Some(0.5)), ("7", Some(1.0))] {
            assert_eq!(read(&format!("areaAlpha={text}")).map(|options| options.area_alpha), Ok(alpha));
        }
        assert_eq!(read("min=3").map(|options| options.line.axis.min), Ok(Some(3.0)));
        assert_eq!(read("min=3&yMin=4").map(|options| options.line.axis.min), Ok(Some(4.0)));
        assert_eq!(read("yMax=max").map(|options| options.line.axis.max), Ok(Some(Top::OfData)));
        assert_eq!(read("thickness=3").map(|options| options.line.line_width), Ok(3.0));
        assert_eq!(read("logBase=0.5").map(|options| options.line.log_base), Ok(None));
        assert_eq!(read("yUnitSystem=furlong").map(|options| options.line.units), Ok(Units::Si));
        assert_eq!(read("rightDashed=true").map(|options| options.line.right.dashed), Ok(Some(DASH)));
        assert_eq!(read("title=a%252Bb%20c").map(|options| options.title), Ok(Some("a%2Bb c".to_owned())));
    }

    #[test]
    fn the_error_of_an_invalid_option_shows_a_valid_one() {
        for (query, error) in [
            ("width=wide", "width must be a number, got 'wide'"),
            ("width=0", "width must be a number from 1 to 100000, got '0'"),
            ("height=inf", "height must be a number, got 'inf'"),
            (
                "width=5000&height=5000",
                "an image of 5000 x 5000 pixels is too large; at most 10000000 pixels are drawn",
            ),
            ("lineMode=wavy", "lineMode must be one of slope, staircase, connected, got 'wavy'"),
            ("yStep=0", "yStep must be a number above 0, got '0'"),
            (
                "yDivisors=4,x",
                "yDivisors must be at most 100 whole numbers from 1 to 1000 with commas between, such as 4,5,6, got '4,x'",
            ),
            ("logBase=1", "logBase must be e or a number above 1, got '1'"),
            (
                "bgcolor=mauve",
                "bgcolor must be a colour: a name such as red or darkgrey, or digits such as ff8800 or #ff880080, got 'mauve'",
            ),
        ] {
            assert_eq!(read(query), Err(error.to_owned()), "{query}");
        }
    }

    #[test]
    fn text_can_be_read_on_any_ground() {
        for query in ["template=summary", "bgcolor=black", "bgcolor=ffffff&template=noc", "bgcolor=333333"] {
            let look = read(query).unwrap().look;
            assert!(look.foreground.is_legible_on(look.background), "{query}");
        }
        // What is asked for is done.
        assert_eq!(read("bgcolor=black&fgcolor=black").unwrap().look.foreground, Color::BLACK);
    }
}
