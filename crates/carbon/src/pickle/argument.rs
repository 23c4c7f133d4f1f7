//! What stands behind an opcode: how pickles write numbers and text.

use super::value::{Stop, Value};

/// Takes bytes from the front.
#[inline]
pub(super) fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], Stop> {
    let length = usize::try_from(length).map_err(|_| Stop::Bad)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or(Stop::Bad)?;
    *rest = after;
    Ok(bytes)
}

/// Takes a number's bytes from the front.
#[inline]
pub(super) fn take_chunk<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Stop> {
    let (chunk, after) = rest.split_first_chunk::<N>().ok_or(Stop::Bad)?;
    *rest = after;
    Ok(*chunk)
}

/// An argument that ends at a LF, without it and a CR before it.
pub(super) fn take_line<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Stop> {
    let end = memchr::memchr(b'\n', rest).ok_or(Stop::Bad)?;
    let line = take(rest, end as u64)?;
    take(rest, 1)?;
    Ok(line.strip_suffix(b"\r").unwrap_or(line))
}

pub(super) fn memo_number(text: &[u8]) -> Result<u64, Stop> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Stop::Bad)
}

/// An integer in decimal; a float when it is large.
pub(super) fn decimal(text: &[u8]) -> Result<Value, Stop> {
    let text = std::str::from_utf8(text).map_err(|_| Stop::Bad)?.trim();
    if let Ok(number) = text.parse() {
        return Ok(Value::Int(number));
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Stop::Bad);
    }
    text.parse().map(Value::Float).map_err(|_| Stop::Bad)
}

/// An integer in two's complement, lowest byte first; a float when it is large.
pub(super) fn long(bytes: &[u8]) -> Value {
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let fill = if negative { 0xff } else { 0 };
    if bytes.len() <= 8 {
        let mut number = [fill; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        return Value::Int(i64::from_le_bytes(number));
    }
    // The sum of the bytes' worth, each negated by the fill; a double overflows to infinity as it should.
    let magnitude = bytes.iter().rev().fold(0.0, |sum, &byte| sum * 256.0 + f64::from(byte ^ fill));
    Value::Float(if negative { -magnitude - 1.0 } else { magnitude })
}

/// Python 2's `repr` of a string without its quotes.
pub(super) fn unescape_string(text: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first().ok_or(Stop::Bad)?;
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'v' => out.push(11),
            b'\\' | b'\'' | b'"' => out.push(escape),
            b'x' => out.push(hexadecimal(take(&mut rest, 2)?)? as u8),
            b'0'..=b'7' => {
                let mut number = u32::from(escape - b'0');
                for _ in 0..2 {
                    let Some((&digit @ b'0'..=b'7', after)) = rest.split_first() else { break };
                    number = number * 8 + u32::from(digit - b'0');
                    rest = after;
                }
                out.push(number as u8);
            }
            _ => out.extend_from_slice(&[b'\\', escape]),
        }
    }
    Ok(())
}

/// Python's raw-unicode-escape as UTF-8: `\uXXXX` and `\UXXXXXXXX`; every other byte is a character of Latin-1.
pub(super) fn unescape_unicode(text: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut rest = text;
    let mut buffer = [0; 4];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = match (byte, rest.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                out.extend_from_slice(char::from(byte).encode_utf8(&mut buffer).as_bytes());
                continue;
            }
        };
        take(&mut rest, 1)?;
        let character = char::from_u32(hexadecimal(take(&mut rest, digits)?)?).ok_or(Stop::Bad)?;
        out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    }
    Ok(())
}

fn hexadecimal(digits: &[u8]) -> Result<u32, Stop> {
    digits.iter().try_fold(0, |number, &digit| {
        let digit = char::from(digit).to_digit(16).ok_or(Stop::Bad)?;
        Ok(number << 4 | digit)
    })
}
