//! The sources of the workspace's crates as these tests read them: files, modules, and which file uses which.
//!
//! 1. [`code_of`] blanks comments and texts and removes what only tests compile.
//! 2. [`paths_in`] lists the paths that a file names, those of `use` trees written out.
//! 3. [`Crate::uses`] follows each path through modules and re-exports to the file that defines the item.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The `src` folder of a crate: its files by the path of their module; the root's path is empty.
pub struct Crate {
    pub files: BTreeMap<Vec<String>, File>,
}

pub struct File {
    /// Relative to `src`.
    pub name: String,
    /// See [`code_of`].
    pub code: String,
    /// Public and private imports of this file, by the name they have here.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules with a glob import here.
    globs: Vec<Vec<String>>,
    paths: Vec<Vec<String>>,
}

pub fn crates_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate stands in crates/").to_owned()
}

impl Crate {
    /// Reads `crates/NAME/src`, without the modules that only tests compile.
    pub fn read(name: &str) -> Self {
        let src = crates_folder().join(name).join("src");
        let mut texts = BTreeMap::new();
        read_folder(&src, &src, &mut texts);
        let has_lib = texts.contains_key("lib.rs");
        let mut files = BTreeMap::new();
        let mut tests_only = Vec::new();
        for (file, text) in texts {
            if file == "main.rs" && has_lib {
                continue;
            }
            let module = module_of(&file);
            let (code, test_modules) = code_of(&text);
            tests_only.extend(test_modules.into_iter().map(|test| [module.clone(), vec![test]].concat()));
            files.insert(module, File::new(file, code));
        }
        files.retain(|module, _| !tests_only.iter().any(|test| module.starts_with(test)));
        Self { files }
    }

    /// The files that each file uses. A re-export counts as a use only where the file also uses the name itself.
    pub fn uses(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let of_file = |(module, file): (&Vec<String>, &File)| {
            let targets = file.paths.iter().filter_map(|path| self.file_of(module, path, 0));
            targets.filter(|target| *target != module).map(|target| self.files[target].name.as_str()).collect()
        };
        self.files.iter().map(|entry| (entry.1.name.as_str(), of_file(entry))).collect()
    }

    /// The module whose file defines what `path` names, seen from `module`; `None` for paths to other crates.
    fn file_of<'a>(&'a self, module: &[String], path: &[String], depth: usize) -> Option<&'a Vec<String>> {
        let mut at = module.to_vec();
        let mut rest = path;
        let mut relative = true;
        while let Some(first) = rest.first() {
            match first.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                _ => break,
            }
            relative = false;
            rest = &rest[1..];
        }
        // Without `crate`, `super` or `self` only a module below this one is meant; anything else is another crate or an
        // item whose import is a path of its own.
        if relative && !self.files.contains_key(&[&at[..], &rest[..1.min(rest.len())]].concat()) {
            return None;
        }
        while let Some(name) = rest.first() {
            at.push(name.clone());
            if !self.files.contains_key(&at) {
                at.pop();
                break;
            }
            rest = &rest[1..];
        }
        let (found, file) = self.files.get_key_value(&at)?;
        let Some(name) = rest.first() else { return Some(found) };
        if depth > 8 || (found == module && depth > 0) {
            return Some(found);
        }
        if let Some(import) = file.imports.get(name) {
            let whole = [&import[..], &rest[1..]].concat();
            return self.file_of(&at, &whole, depth + 1).or(Some(found));
        }
        let globs = file.globs.iter().filter_map(|glob| self.file_of(&at, glob, depth + 1));
        let by_glob = globs.into_iter().find(|glob| *glob != found && self.files[*glob].defines(name));
        by_glob.or(Some(found))
    }

    /// Groups of files that use each other in a circle, largest first.
    pub fn circles(&self) -> Vec<BTreeSet<&str>> {
        let uses = self.uses();
        let from: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|file| (*file, reachable(&uses, file))).collect();
        let circle = |file: &str| from[file].iter().copied().filter(|other| from[*other].contains(file)).collect();
        let mut circles: Vec<BTreeSet<&str>> = uses.keys().map(|file| circle(file)).collect();
        circles.retain(|circle| circle.len() > 1);
        circles.sort_by_key(|circle| (usize::MAX - circle.len(), circle.first().copied()));
        circles.dedup();
        circles
    }
}

/// Every file that `start` uses, directly or through others.
fn reachable<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, start: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = uses[start].iter().copied().collect();
    while let Some(file) = next.pop() {
        if seen.insert(file) {
            next.extend(&uses[file]);
        }
    }
    seen
}

impl File {
    fn new(name: String, code: String) -> Self {
        let mut imports = BTreeMap::new();
        let mut globs = Vec::new();
        let mut paths = Vec::new();
        let found = paths_in(&code);
        for import in &found.imports {
            let mut path = import.path.clone();
            if path.last().is_some_and(|last| last == "*") {
                path.pop();
                paths.push(path.clone());
                globs.push(path);
                continue;
            }
            if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                path.pop();
            }
            let alias = import.alias.clone().unwrap_or_else(|| path.last().cloned().unwrap_or_default());
            if !import.public || found.words.contains(&alias) {
                paths.push(path.clone());
            }
            imports.insert(alias, path);
        }
        paths.extend(found.inline);
        Self { name, code, imports, globs, paths }
    }

    fn defines(&self, name: &str) -> bool {
        let kinds = ["struct", "enum", "fn", "trait", "type", "const", "static", "macro_rules!"];
        kinds.iter().any(|kind| self.code.contains(&format!("{kind} {name}")))
    }
}

fn read_folder(src: &Path, folder: &Path, texts: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a crate has a src folder") {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() {
            read_folder(src, &path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).expect("below src").to_string_lossy().into_owned();
            texts.insert(name, fs::read_to_string(&path).expect("a source is UTF-8"));
        }
    }
}

fn module_of(file: &str) -> Vec<String> {
    let mut module: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_root = module.len() == 1 && matches!(module[0].as_str(), "lib" | "main");
    if is_root || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

/// The code with comments and texts blanked and without items under `#[cfg(test)]`, and the names of files of the latter.
fn code_of(text: &str) -> (String, Vec<String>) {
    let mut code = blanked(text);
    let mut test_modules = Vec::new();
    while let Some(start) = code.find("#[cfg(test)]") {
        let mut depth = 0usize;
        let mut end = code.len();
        for (at, byte) in code.bytes().enumerate().skip(start + "#[cfg(test)]".len()) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (byte == b'}' || byte == b';') {
                end = at + 1;
                break;
            }
        }
        let item = &code[start..end];
        if let Some((_, module)) = item.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")) {
            test_modules.push(module.trim().to_owned());
        }
        let lines = "\n".repeat(item.matches('\n').count());
        code.replace_range(start..end, &lines);
    }
    (code, test_modules)
}

/// The text with a space for every byte of comments, texts and characters; line feeds stay.
fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = end_of_blank(bytes, at);
        if end == at {
            out.push(if bytes[at].is_ascii() { bytes[at] } else { b' ' });
            at += 1;
            continue;
        }
        out.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    String::from_utf8(out).expect("only ASCII is left")
}

/// Where the comment, text or character that begins at `at` ends; `at` itself when none begins there.
fn end_of_blank(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after = |needle: &[u8], from: usize| {
        let found = rest[from.min(rest.len())..].windows(needle.len()).position(|window| window == needle);
        found.map_or(bytes.len(), |found| at + from + found + needle.len())
    };
    if rest.starts_with(b"//") {
        return after(b"\n", 0) - 1;
    }
    if rest.starts_with(b"/*") {
        return after(b"*/", 2);
    }
    let follows_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest[0] == b'r' && !(follows_word && bytes[at - 1] != b'b') {
        let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            return after(&[b"\"", "#".repeat(hashes).as_bytes()].concat(), 2 + hashes);
        }
    }
    let quote = rest[0];
    let is_character = quote == b'\'' && (rest.get(1) == Some(&b'\\') || is_quoted_character(rest));
    if quote != b'"' && !is_character {
        return at;
    }
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// `'x'`, and not the start of a lifetime: one character, then the quote.
fn is_quoted_character(rest: &[u8]) -> bool {
    let width = match rest.get(1) {
        Some(byte) if byte.is_ascii() => 1,
        Some(byte) => byte.leading_ones() as usize,
        None => return false,
    };
    rest.get(1 + width) == Some(&b'\'')
}

struct Paths {
    imports: Vec<Import>,
    /// Paths outside of `use`, of two and more components.
    inline: Vec<Vec<String>>,
    /// Every word outside of `use`.
    words: BTreeSet<String>,
}

struct Import {
    path: Vec<String>,
    alias: Option<String>,
    public: bool,
}

fn paths_in(code: &str) -> Paths {
    let tokens = tokens_of(code);
    let mut paths = Paths { imports: Vec::new(), inline: Vec::new(), words: BTreeSet::new() };
    let mut at = 0;
    while at < tokens.len() {
        // `use<'a>` in a return type lists what the type captures.
        if tokens[at] == "use" && tokens.get(at + 1) != Some(&"<") {
            let public = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            at += 1;
            read_use(&tokens, &mut at, &[], public, &mut paths.imports);
            continue;
        }
        // The name in a declaration of a module is not a use of an item with that name.
        if !is_word(tokens[at]) || (at > 0 && tokens[at - 1] == "mod") {
            at += 1;
            continue;
        }
        let mut path = vec![tokens[at].to_owned()];
        let continues_another = at > 0 && tokens[at - 1] == "::";
        paths.words.insert(tokens[at].to_owned());
        at += 1;
        while at + 1 < tokens.len() && tokens[at] == "::" && is_word(tokens[at + 1]) {
            path.push(tokens[at + 1].to_owned());
            at += 2;
        }
        if path.len() > 1 && !continues_another {
            paths.inline.push(path);
        }
    }
    paths
}

/// Reads one tree of a `use` at `at`, up to the `,`, `}` or `;` behind it.
fn read_use(tokens: &[&str], at: &mut usize, prefix: &[String], public: bool, imports: &mut Vec<Import>) {
    let mut path = prefix.to_vec();
    let mut alias = None;
    while *at < tokens.len() {
        match tokens[*at] {
            "::" => {}
            "as" => {
                *at += 1;
                alias = Some(tokens[*at].to_owned());
            }
            "{" => {
                *at += 1;
                while tokens[*at] != "}" {
                    read_use(tokens, at, &path, public, imports);
                    *at += usize::from(tokens[*at] == ",");
                }
                *at += 1;
                return;
            }
            "," | "}" | ";" => break,
            word => path.push(word.to_owned()),
        }
        *at += 1;
    }
    imports.push(Import { path, alias, public });
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

fn tokens_of(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            length => length,
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

#[test]
fn code_is_read_without_comments_texts_and_tests() {
    let text = "// fs::a\nlet x = \"fs::b \\\" fs::c\"; let y: &'a str = r#\"fs::d\"#; '\"'; fs::e();\n\
                #[cfg(test)]\n#[allow(x)]\nmod tests { fn f() { fs::g(); } }\n#[cfg(test)]\nmod far;\nfs::h();";
    let (code, test_modules) = code_of(text);
    let words: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(words.join(" "), "let x = ; let y: &'a str = ; ; fs::e(); fs::h();");
    assert_eq!(test_modules, ["far"]);
}

#[test]
fn a_use_tree_is_written_out() {
    let paths =
        paths_in("pub use crate::{a::{self, B as C}, d::*}; use super::E; fn f() { g::h(); crate::i::J::k(); }");
    let imports: Vec<String> = paths.imports.iter().map(|import| import.path.join("::")).collect();
    assert_eq!(imports, ["crate::a::self", "crate::a::B", "crate::d::*", "super::E"]);
    assert_eq!(paths.imports[1].alias.as_deref(), Some("C"));
    assert_eq!(paths.inline, [vec!["g", "h"], vec!["crate", "i", "J", "k"]]);
}

#[test]
fn a_circle_is_found_through_a_re_export_and_not_where_a_parent_only_re_exports() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::{A, a}; pub use b::B;"),
        ("a.rs", "use crate::B; pub struct A;"),
        ("b.rs", "use crate::{A, c}; pub struct B;"),
        ("c.rs", "use super::LIMIT;"),
    ];
    let file = |(name, code): (&str, &str)| (module_of(name), File::new(name.to_owned(), code.to_owned()));
    let found = Crate { files: files.into_iter().map(file).collect() };
    assert_eq!(found.circles(), [BTreeSet::from(["a.rs", "b.rs"])]);
}
