//! Small files of lines whose last line is the CRC-32 of those before it.

/// The lines, each with its line feed, and the line with their checksum.
pub fn seal_lines(lines: &str) -> String {
    format!("{lines}crc32 {:08x}\n", crc32fast::hash(lines.as_bytes()))
}

/// The lines before the checksum, without the last line feed. `None` where the checksum is missing or wrong.
pub fn sealed_lines(text: &str) -> Option<&str> {
    let (lines, crc) = text.trim_end().rsplit_once('\n')?;
    let crc = u32::from_str_radix(crc.strip_prefix("crc32 ")?, 16).ok()?;
    (crc32fast::hash(&text.as_bytes()[..=lines.len()]) == crc).then_some(lines)
}
