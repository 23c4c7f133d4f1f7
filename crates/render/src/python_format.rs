//! `text % number` of Python, because aliasQuery names series with it.

use crate::number::repr;

/// The largest width and precision, characters. Python has no bound.
const MAX_WIDTH: usize = 1000;

/// Formats one number, which Python holds as an integer or a float. The error describes the mistake in the text.
pub(crate) fn python_format(template: &str, value: f64, integer: bool) -> Result<String, String> {
    let mut out = String::with_capacity(template.len() + 16);
    let mut used = false;
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let (place, after) = Place::read(after)?;
        rest = after;
        if place.conversion == '%' {
            out.push('%');
            continue;
        }
        if std::mem::replace(&mut used, true) {
            return Err("must have one place for a number, such as '%d', got more".to_owned());
        }
        place.write(value, integer, &mut out)?;
    }
    out.push_str(rest);
    if used { Ok(out) } else { Err("must have a place for a number, such as '%d', got none".to_owned()) }
}

/// `%[flags][width][.precision]conversion`
#[derive(Default)]
struct Place {
    left: bool,
    plus: bool,
    blank: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    conversion: char,
}

impl Place {
    /// Reads the format behind a `%`, and returns the text behind it.
    fn read(text: &str) -> Result<(Place, &str), String> {
        let mut place = Place::default();
        let mut rest = text;
        while let Some(flag) = rest.chars().next().filter(|flag| "-+ 0#".contains(*flag)) {
            match flag {
                '-' => place.left = true,
                '+' => place.plus = true,
                ' ' => place.blank = true,
                '0' => place.zeros = true,
                _ => return Err("must not have the flag # in a place for a number".to_owned()),
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        (place.width, rest) = number(rest)?;
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = number(after)?;
            place.precision = Some(precision);
            rest = after;
        }
        rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
        let conversion = rest.chars().next().ok_or("ends within a place for a number; write %% for a percent sign")?;
        place.conversion = conversion;
        Ok((place, rest.get(conversion.len_utf8()..).unwrap_or_default()))
    }

    fn write(&self, value: f64, integer: bool, out: &mut String) -> Result<(), String> {
        let magnitude = value.abs();
        let precision = self.precision.unwrap_or(6);
        let whole = || match value.is_finite() {
            true => Ok(format!("{:0>1$}", format!("{:.0}", magnitude.trunc()), self.precision.unwrap_or(1))),
            false => Err("cannot write infinity as a whole number".to_owned()),
        };
        let digits = match self.conversion {
            'd' | 'i' | 'u' => whole()?,
            'x' if integer => format!("{:x}", magnitude as u64),
            'X' if integer => format!("{:X}", magnitude as u64),
            'o' if integer => format!("{:o}", magnitude as u64),
            's' | 'r' | 'a' => {
                let text = if integer { format!("{value:.0}") } else { repr(value) };
                let text: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                self.pad("", &text, false, out);
                return Ok(());
            }
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' if !value.is_finite() => "inf".to_owned(),
            'f' | 'F' => format!("{magnitude:.precision$}"),
            'e' | 'E' => scientific(magnitude, precision),
            'g' | 'G' => shorter(magnitude, precision.max(1)),
            other => return Err(format!("has the unknown conversion %{other}; %d, %f, %g and %s are known")),
        };
        let digits = if self.conversion.is_ascii_uppercase() { digits.to_ascii_uppercase() } else { digits };
        let whole_zero = matches!(self.conversion, 'd' | 'i' | 'u') && value.trunc() == 0.0;
        let sign = match value.is_sign_negative() && !whole_zero && !(integer && value == 0.0) {
            true => "-",
            false if self.plus => "+",
            false if self.blank => " ",
            false => "",
        };
        self.pad(sign, &digits, self.zeros, out);
        Ok(())
    }

    /// Fills up to the width: with blanks in front of the sign or at the end, or with zeros behind the sign.
    fn pad(&self, sign: &str, digits: &str, zeros: bool, out: &mut String) {
        let missing = self.width.saturating_sub(sign.len() + digits.chars().count());
        let fill = |with: char, out: &mut String| out.extend(std::iter::repeat_n(with, missing));
        if !self.left && !zeros {
            fill(' ', out);
        }
        out.push_str(sign);
        if !self.left && zeros {
            fill('0', out);
        }
        out.push_str(digits);
        if self.left {
            fill(' ', out);
        }
    }
}

/// The digits at the start of a text, 0 where there are none, and what follows.
fn number(text: &str) -> Result<(usize, &str), String> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    let number = if digits.is_empty() { Some(0) } else { digits.parse().ok() };
    let number = number.filter(|number| *number <= MAX_WIDTH);
    Ok((number.ok_or_else(|| format!("asks for {digits} characters; at most {MAX_WIDTH} are written"))?, rest))
}

/// `1.500000e+02`
fn scientific(magnitude: f64, precision: usize) -> String {
    let text = format!("{magnitude:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// So many significant digits without trailing zeros.
fn shorter(magnitude: f64, digits: usize) -> String {
    let text = format!("{magnitude:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let strip = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if -4 <= exponent && exponent < digits as i32 {
        return strip(&format!("{magnitude:.*}", (digits as i32 - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", strip(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Answers of CPython 3.11.
    #[test]
    fn numbers_are_formatted_as_python_does() {
        let cases = [
            ("%d users", 41.9, "41 users"),
            ("%d", -0.5, "0"),
            ("%5d|", -3.7, "   -3|"),
            ("%-5d|", 3.0, "3    |"),
            ("%05d", -3.0, "-0003"),
            ("%+d", 3.0, "+3"),
            ("% d", 3.0, " 3"),
            ("%.3d", 5.0, "005"),
            ("%f", 1.5, "1.500000"),
            ("%.2f%%", 99.555, "99.56%"),
            ("%8.2f|", -1.005, "   -1.00|"),
            ("%08.2f|", -1.005, "-0001.00|"),
            ("%.0f", 2.5, "2"),
            ("%e", 12345.678, "1.234568e+04"),
            ("%.1E", 0.00012, "1.2E-04"),
            ("%g", 1e6, "1e+06"),
            ("%.3g", 1234.5, "1.23e+03"),
            ("%.10g", 0.1, "0.1"),
            ("%s", 5.0, "5.0"),
            ("%.2s|%%", 5.25, "5.|%"),
            ("%6s|", 5.0, "   5.0|"),
            ("%ld", 7.0, "7"),
            ("%d", 1e20, "100000000000000000000"),
            ("%.1f", f64::INFINITY, "inf"),
        ];
        for (template, value, text) in cases {
            assert_eq!(python_format(template, value, false).as_deref(), Ok(text), "{template}");
        }
        assert_eq!(python_format("%s %%", 5.0, true).as_deref(), Ok("5 %"));
        assert_eq!(python_format("%x", 255.0, true).as_deref(), Ok("ff"));
        for wrong in ["none", "%d %d", "%", "%5", "%q", "%x", "%(a)d", "%*d", "%9999d", "%.9999f", "%é"] {
            assert!(python_format(wrong, 5.0, false).is_err(), "{wrong}");
        }
        assert!(python_format("%d", f64::INFINITY, false).is_err());
    }
}
