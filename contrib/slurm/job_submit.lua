-- GPU memory that a job asks for by --gpu-mem becomes shards (gres/shard), by which Slurm packs jobs onto GPUs. A job
-- that no GPU can hold is rejected at once. Jobs without the option, and those that ask for GPUs or shards themselves,
-- are not changed.
--
-- Copy this file beside slurm.conf and set JobSubmitPlugins=lua there. A site with a job_submit.lua of its own loads
-- this one in it and calls radrm.submit:
--
--   dofile("/usr/share/radrm/slurm/job_submit.lua")
--   function slurm_job_submit(job, partitions, uid)
--      return radrm.submit(job)
--   end

radrm = {
   -- GPU memory that one shard stands for, bytes: shard= in plugstack.conf.
   shard = 1024 * 1024,
   -- Shards of the largest GPU. nil: taken from the lines NodeName= of slurm.conf when this file is loaded.
   largest = nil,
   -- An estimate for jobs without --gpu-mem: a function of the job that returns bytes, or nil to leave the job alone. A job whose
   -- estimate fails is rejected: without shards it would run beside others on a GPU that may not hold it.
   -- radrm.table below makes one: radrm.estimate = radrm.table("/etc/slurm/radrm-needs").
   estimate = nil,
   -- Error code of a rejected job, by which sbatch and programs know it. nil: that of an invalid generic resource.
   code = nil,
}

-- Bytes in `10GiB`, `500MB` and `1073741824`.
local function bytes_of(text)
   local number, unit = text:match("^(%d+%.?%d*)(%a*)$")
   local factors = { [""] = 1, kib = 1024, mib = 1024 ^ 2, gib = 1024 ^ 3, kb = 1000, mb = 1000 ^ 2, gb = 1000 ^ 3 }
   local factor = number and factors[unit:lower()]
   return factor and tonumber(number) * factor
end

-- An estimate by a table: lines `USER NAME MEMORY` for the user and the name of a job, `*` for any. The first that fits counts, and
-- `#` begins a comment. The table is read for each job, so a change needs no restart.
function radrm.table(path)
   return function(job)
      local fits = function(wanted, found)
         return wanted == "*" or wanted == tostring(found)
      end
      local file = assert(io.open(path))
      local text = file:read("*a")
      file:close()
      local number = 0
      for line in text:gmatch("([^\n]*)\n?") do
         number = number + 1
         local words = line:gsub("#.*", "")
         if words:match("%S") then
            local user, name, memory = words:match("^%s*(%S+)%s+(%S+)%s+(%S+)%s*$")
            local bytes = memory and bytes_of(memory)
            if not bytes then
               error(string.format("%s: line %d is not USER NAME MEMORY", path, number), 0)
            end
            if (fits(user, job.user_name) or fits(user, job.user_id)) and fits(name, job.name) then
               return bytes
            end
         end
      end
      return nil
   end
end

-- The number in `2`, `160K` and `1M`, as Slurm writes counts.
local function count_of(text)
   local number, unit = text:match("^(%d+)([KkMmGg]?)$")
   if not number then
      return nil
   end
   local factors = { [""] = 1, k = 1024, m = 1024 ^ 2, g = 1024 ^ 3 }
   return tonumber(number) * factors[unit:lower()]
end

-- Shards of each GPU of a node, from its Gres=.
local function per_gpu(gres)
   local sums = { gpu = 0, shard = 0 }
   for item in gres:gsub("%b()", ""):gmatch("[^,]+") do
      local name = item:match("^[^:]+"):lower()
      if sums[name] then
         sums[name] = sums[name] + (count_of(item:match("[^:]+$")) or 1)
      end
   end
   return sums.gpu > 0 and sums.shard > 0 and math.floor(sums.shard / sums.gpu) or nil
end

-- Shards of the largest GPU in a slurm.conf.
local function largest_in(path)
   local file = path and io.open(path)
   if not file then
      return nil
   end
   local text = file:read("*a"):gsub("\\\r?\n", " ")
   file:close()
   local largest
   for line in text:gmatch("[^\r\n]+") do
      local words = line:gsub("#.*", ""):lower()
      local gres = words:match("^%s*nodename=.*%sgres=(%S+)")
      local shards = gres and per_gpu(gres)
      if shards and shards > (largest or 0) then
         largest = shards
      end
   end
   return largest
end

local function find_largest()
   local own = debug and debug.getinfo(1, "S").source:match("^@(.*/)")
   local paths = { os.getenv("SLURM_CONF") or "", own and own .. "slurm.conf" or "", "/etc/slurm/slurm.conf" }
   for _, path in ipairs(paths) do
      local largest = path ~= "" and largest_in(path)
      if largest then
         return largest
      end
   end
end

local function gib(bytes)
   return string.format("%.1f GiB", bytes / 1024 ^ 3)
end

-- What the plug-in in sbatch, srun and salloc hands on of --gpu-mem: bytes, or a percentage of a GPU.
local function asked(job)
   for _, entry in pairs(job.spank_job_env or {}) do
      local value = entry:match("RADRM_GPU_MEM=(.*)$")
      if value then
         return value
      end
   end
end

-- Whether the job itself asks for GPUs or parts of them.
local function names_gpus(job)
   for _, field in ipairs({ "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }) do
      local text = job[field]
      if text and (text:find("gpu") or text:find("shard") or text:find("mps")) then
         return true
      end
   end
   return false
end

local function add_shards(job, shards)
   local item = string.format("shard:%d", shards)
   local before = job.tres_per_node
   if before and before ~= "" then
      -- Slurm's versions write gres: or gres/ before each item.
      job.tres_per_node = before .. "," .. (before:match("^gres[:/]") or "") .. item
   else
      job.gres = item
   end
   if job.script and job.script ~= "" then
      -- The plug-in on the node then knows that the shards are all that the option asked for.
      job.environment["SLURM_RADRM_SHARDS"] = "option"
   end
end

local function reject(text, ...)
   slurm.log_user("radrm: " .. string.format(text, ...):gsub("%%", "%%%%"))
   -- ESLURM_INVALID_GRES of slurm_errno.h, which Slurm gives to no script by name.
   return radrm.code or 2072
end

-- What radrm.estimate says of a job: whether it could be asked, and bytes or nil.
local function estimated(job)
   local is_known, found = pcall(radrm.estimate, job)
   if is_known and (found == nil or (type(found) == "number" and found > 0 and found < math.huge)) then
      return true, found
   end
   local text = "radrm: radrm.estimate failed: " .. tostring(found)
   slurm.log_error((text:gsub("%%", "%%%%")))
   return false, nil
end

-- Changes or rejects a job that is submitted; returns what slurm_job_submit returns.
function radrm.submit(job)
   local value = asked(job)
   local bytes
   if value then
      bytes = tonumber(value)
      local percent = not bytes and tonumber(value:match("^([%d.]+)%%$") or "")
      if percent and radrm.largest then
         bytes = math.ceil(radrm.largest * percent / 100) * radrm.shard
      end
   elseif radrm.estimate and not names_gpus(job) then
      local is_known
      is_known, bytes = estimated(job)
      if not is_known then
         return reject("the memory that the job needs cannot be estimated: state it by --gpu-mem")
      end
   end
   if not bytes then
      return slurm.SUCCESS
   end
   local shards = math.max(1, math.ceil(bytes / radrm.shard))
   if radrm.largest and shards > radrm.largest then
      return reject(
         "no GPU of this cluster has %s of memory: the largest has %s",
         gib(bytes),
         gib(radrm.largest * radrm.shard)
      )
   end
   if not names_gpus(job) then
      add_shards(job, shards)
   end
   return slurm.SUCCESS
end

radrm.largest = radrm.largest or find_largest()

function slurm_job_submit(job, partitions, uid)
   return radrm.submit(job)
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end
