"""Which spaces are hard, of folders that study-strangers.sh made: FOLDER...

For each space the arm that needs the fewest attempts to within 5 %, by its mean over the folders, where that is 20 or
more in the mean or in one of them; and in how many folders the best arm of that folder needs as many."""

import json
import sys
from pathlib import Path
from statistics import mean

HARD = 20


def main(folders):
    for file in sorted(Path(folders[0]).glob("*.json")):
        reports = [json.loads((Path(folder) / file.name).read_text()) for folder in folders]
        arms = [{arm["arm"]: arm["by_case"] for arm in report["groups"][0]["arms"]} for report in reports]
        names = [name for name in arms[0] if name not in ("oracle", "random (exact)")]
        for case, space in enumerate(reports[0]["cases"]):
            needed = {name: [of[name][case]["attempts_to_5_percent"] for of in arms] for name in names}
            best = min(names, key=lambda name: mean(needed[name]))
            times = sum(min(attempts) >= HARD for attempts in zip(*needed.values()))
            if times or mean(needed[best]) >= HARD:
                print(f"{file.stem} region {case} {space['name']}: {space['within_5_percent']} good, {best} "
                      f"{mean(needed[best]):.1f}, hard in {times} of {len(folders)}")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
