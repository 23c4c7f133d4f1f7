//! Carbon's configuration folder: its files read and parsed.

use std::{io, path::Path};

use anyhow::Context;
use carbon::{RuleFiles, Rules};
use host::Disk;

/// The text of each file that exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarbonFiles {
    schemas: Option<String>,
    aggregation: Option<String>,
    blacklist: Option<String>,
    whitelist: Option<String>,
    index: Option<String>,
}

impl CarbonFiles {
    /// Reads a folder; without one, carbon's defaults hold.
    pub fn read(disk: &dyn Disk, dir: Option<&Path>) -> anyhow::Result<CarbonFiles> {
        let Some(dir) = dir else { return Ok(CarbonFiles::default()) };
        // Looked up inside and not listed: a folder need not be listable for its files to be readable.
        anyhow::ensure!(
            disk.exists(&dir.join(".")),
            "the conf-dir {} is not a readable folder; name carbon's folder, or none",
            dir.display()
        );
        let text = |name: &str| {
            let path = dir.join(name);
            match disk.read(&path) {
                Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        };
        Ok(CarbonFiles {
            schemas: text("storage-schemas.conf")?,
            aggregation: text("storage-aggregation.conf")?,
            blacklist: text("blacklist.conf")?,
            whitelist: text("whitelist.conf")?,
            index: text("index-rules.conf")?,
        })
    }

    /// Refuses files that lack one that was there, or all of its sections: carbon goes on with the old rules where a file is
    /// gone, and without its sections every new metric would get the default policy.
    pub fn with_all_of(self, before: &CarbonFiles) -> anyhow::Result<CarbonFiles> {
        let gone = [
            ("storage-schemas.conf", &before.schemas, &self.schemas),
            ("storage-aggregation.conf", &before.aggregation, &self.aggregation),
        ];
        for (name, before, now) in gone {
            anyhow::ensure!(
                before.is_none() || now.is_some(),
                "{name} was there and is gone; put it back, or restart to go on without it"
            );
            anyhow::ensure!(
                !before.as_deref().is_some_and(has_section) || now.as_deref().is_some_and(has_section),
                "{name} had sections and has none; put them back, or restart to go on without them"
            );
        }
        Ok(self)
    }

    /// The rules, with a warning for each line that may not mean what it says.
    ///
    /// # Errors
    /// Everything that is wrong, a line each.
    pub fn rules(&self) -> anyhow::Result<(Rules, Vec<String>)> {
        let files = RuleFiles {
            schemas: self.schemas.as_deref(),
            aggregation: self.aggregation.as_deref(),
            blacklist: self.blacklist.as_deref(),
            whitelist: self.whitelist.as_deref(),
            index: self.index.as_deref(),
        };
        match Rules::parse(files) {
            Ok((rules, warnings)) => Ok((rules, warnings.iter().map(ToString::to_string).collect())),
            Err(errors) => {
                let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                anyhow::bail!("cannot use carbon's files:\n  {}", lines.join("\n  "))
            }
        }
    }
}

/// The rules as tables of Cassandra have them: with one method each. Called at a start and when the files change.
pub fn over_cassandra(rules: Rules) -> Rules {
    let (rules, had_lists) = rules.with_first_methods();
    if had_lists {
        tracing::error!(
            "storage-aggregation.conf has lists of aggregation methods; over Cassandra only the first method of each list applies, \
             because BigGraphite's readers know one value a slot; name one method, or keep points in the embedded store"
        );
    }
    rules
}

/// Whether a line begins a section.
fn has_section(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').lines().any(|line| line.trim_start().starts_with('['))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use host::{Call, FailingDisk, SystemDisk};

    use super::*;

    #[test]
    fn a_folder_that_cannot_be_listed_is_readable_and_a_file_is_not_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("blacklist.conf");
        std::fs::write(&file, "^bad").unwrap();
        let disk = FailingDisk::new(Arc::new(SystemDisk), |call, _| {
            (call == Call::ReadDir).then(|| io::ErrorKind::PermissionDenied.into())
        });
        let files = CarbonFiles::read(&disk, Some(dir.path())).unwrap();
        assert_eq!(files.blacklist.as_deref(), Some("^bad"));
        assert!(CarbonFiles::read(&disk, Some(&file)).is_err());
        assert!(CarbonFiles::read(&disk, Some(&dir.path().join("missing"))).is_err());
    }

    #[test]
    fn rules_that_are_gone_are_refused_and_lists_may_go() {
        let text = |text: &str| Some(text.to_owned());
        let files = |schemas: Option<String>, blacklist| CarbonFiles { schemas, blacklist, ..CarbonFiles::default() };
        let before = files(text("[all]"), text("^bad"));
        assert!(files(text("[other]"), None).with_all_of(&before).is_ok());
        // A power cut or `> storage-schemas.conf` leaves an empty file.
        for nothing in ["", "\n# [all]\n", "\0\0\0\0"] {
            let error = files(text(nothing), text("^bad")).with_all_of(&before).unwrap_err();
            assert!(error.to_string().starts_with("storage-schemas.conf had sections and has none"), "{error}");
        }
        assert!(files(text(""), None).with_all_of(&files(text(""), None)).is_ok());
        let error = files(None, text("^bad")).with_all_of(&before).unwrap_err();
        assert!(error.to_string().starts_with("storage-schemas.conf was there and is gone"), "{error}");
        assert!(files(None, None).with_all_of(&files(None, text("^bad"))).is_ok());
    }
}
